"""Lets a process read what torch.onnx.export knows of operators once, and not again for each graph."""

import functools

from torch.onnx._internal.exporter._registration import ONNXRegistry


def read_operators_once():
    """Keep what onnxscript says of its functions, and torch of those: a quarter of a tiny export.

    They say the same each time, as long as nobody registers an operator: we do not.
    """
    if not isinstance(ONNXRegistry.__dict__["from_torchlib"], staticmethod):
        ONNXRegistry.from_torchlib = staticmethod(functools.cache(ONNXRegistry.from_torchlib))
