"""Lets a process read what torch.onnx.export knows of operators once, and not again for each graph."""

import functools

from torch.onnx._internal._lazy_import import onnxscript_apis


def read_operators_once():
    """Keep what onnxscript says of its functions: it parses the source of 500 for each graph, a tenth of a tiny export.

    It says the same each time.
    """
    onnxscript_apis.get_torchlib_ops = functools.cache(onnxscript_apis.get_torchlib_ops)
