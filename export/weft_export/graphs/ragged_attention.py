"""Puts ONNX's own attention in the place of each operator that stands for it, whose opset is newer than the others'."""

import onnx_ir
from onnx_ir.passes.common import RemoveUnusedOpsetsPass
from onnxscript import version_converter

from weft_export.layers.attention import OPERATOR

OPSET = 24
"""The first in which Attention reads how many keys of each row are no padding."""


def expand_attention(model: onnx_ir.Model) -> None:
    """Do so in place, and bring the model to that opset."""
    version_converter.convert_version(model, OPSET)
    for node in model.graph:
        if f"{node.domain}::{node.op_type}" == OPERATOR:
            node.domain, node.version = "", OPSET
    RemoveUnusedOpsetsPass()(model)
