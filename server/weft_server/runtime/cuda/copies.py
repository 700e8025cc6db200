"""Copies between blocks of a device's memory.

ONNX Runtime has no call that copies a part of a tensor, so small graphs do it. All content is copied as float32 words,
whatever it means. That keeps every bit, and one kernel is enough for all types.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import onnx
from onnx import TensorProto, helper

from weft_server.runtime.blocks import block_of
from weft_server.runtime.session import Session

if TYPE_CHECKING:
    from collections.abc import Sequence as Many

    from weft_server.runtime.blocks import Block
    from weft_server.runtime.device import Device

_OPSET = 21
_IR_VERSION = 10


class Copies:
    """`num` blocks copied in one run, each onto a block of the same size."""

    def __init__(self, num: int, device: Device) -> None:
        names = [(f"x{index}", f"y{index}") for index in range(num)]
        nodes = [helper.make_node("Identity", [source], [target]) for source, target in names]
        sources = [_words(source, ["n" + source]) for source, _ in names]
        targets = [_words(target, ["n" + source]) for source, target in names]
        self._names = names
        self._session = _session(nodes, sources, targets, device)

    def run(self, pairs: Many[tuple[Block, Block]]) -> None:
        """Copy each source onto its target. The targets are written when this returns."""
        inputs, outputs = {}, {}
        for (source, target), (from_block, onto_block) in zip(self._names, pairs, strict=True):
            inputs[source] = from_block.words(from_block.num_bytes // 4)
            outputs[target] = onto_block.words(onto_block.num_bytes // 4)
        self._session.bind(inputs, outputs).run()


class Stretch:
    """A tensor [outer, length, inner] copied onto a longer or shorter one, zeros behind its end."""

    def __init__(self, device: Device) -> None:
        source = _words("x", ["outer", "from", "inner"])
        pads = helper.make_tensor_value_info("pads", TensorProto.INT64, [6])
        target = _words("y", ["outer", "onto", "inner"])
        node = helper.make_node("Pad", ["x", "pads"], ["y"])
        self._session = _session([node], [source, pads], [target], device)

    def run(self, source: Block, target: Block) -> None:
        """Copy the middle axis from its start, as far as both tensors go. Both have rank 3 and are in words."""
        pads = np.array([0, 0, 0, 0, target.shape[1] - source.shape[1], 0])
        # Pad reads its pads on the host wherever it runs.
        self._session.bind({"x": source, "pads": block_of(pads)}, {"y": target}).run()


def _words(name: str, shape: list[str]) -> onnx.ValueInfoProto:
    return helper.make_tensor_value_info(name, TensorProto.FLOAT, shape)


def _session(
    nodes: list[onnx.NodeProto],
    inputs: list[onnx.ValueInfoProto],
    outputs: list[onnx.ValueInfoProto],
    device: Device,
) -> Session:
    graph = helper.make_graph(nodes, "copies", inputs, outputs)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", _OPSET)], ir_version=_IR_VERSION)
    return Session(model.SerializeToString(), 1, device)
