"""Sends weights of a graph to a device, where several sessions read them."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np
import onnx
from onnx import TensorProto, helper
from onnx.external_data_helper import ExternalDataInfo

from weft_server.errors import BundleError
from weft_server.runtime.blocks import Block, SharedWeights
from weft_server.runtime.cudart import DeviceMemory
from weft_server.runtime.session import Session

if TYPE_CHECKING:
    from pathlib import Path

    from weft_server.runtime.device import Device

_OPSET = 21
_IR_VERSION = 10


def send_weights(model: onnx.ModelProto, folder: Path, device: Device) -> SharedWeights:
    """Send the weights that lie in files beside a graph. Small ones are in the graph, and each session has its own.

    Raises BundleError where a file does not hold what the graph says, and MemoryError where there is not so much.
    """
    values: dict[str, Any] = {}
    blocks: list[Block] = []
    passing: dict[int, Session] = {}
    for tensor in model.graph.initializer:
        if tensor.data_location == TensorProto.EXTERNAL and 0 not in tensor.dims:
            block = _sent(tensor, folder, device)
            blocks.append(block)
            kind = tensor.data_type
            if kind not in passing:
                passing[kind] = _identity(kind, device)
            bound = passing[kind].bind({"x": block}, {"y": block})
            bound.run()
            (values[tensor.name],) = bound.values()
    return SharedWeights(str(folder), values, blocks)


def _sent(tensor: onnx.TensorProto, folder: Path, device: Device) -> Block:
    """Copy a weight from its file to a device. Nobody else compares its shape with what lies there."""
    info = ExternalDataInfo(tensor)
    path, start = folder / info.location, info.offset or 0
    item_bytes = helper.tensor_dtype_to_np_dtype(tensor.data_type).itemsize
    num_bytes = math.prod(map(int, tensor.dims)) * item_bytes
    if info.length not in {None, 0, num_bytes} or start + num_bytes > path.stat().st_size:
        raise BundleError(f"{info.location} does not hold the {num_bytes} bytes of {tensor.name!r} that the graph says")
    memory = DeviceMemory(num_bytes, device)
    memory.send(np.memmap(path, np.uint8, "r", start, (num_bytes,)))
    return Block(memory.pointer, tuple(tensor.dims), tensor.data_type, item_bytes, device, memory)


def _identity(element_type: int, device: Device) -> Session:
    """A graph that copies nothing, bound to the same memory on both sides: its output is a value over that memory."""
    ports = [helper.make_value_info(name, helper.make_tensor_type_proto(element_type, None)) for name in "xy"]
    graph = helper.make_graph([helper.make_node("Identity", ["x"], ["y"])], "identity", ports[:1], ports[1:])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", _OPSET)], ir_version=_IR_VERSION)
    return Session(model.SerializeToString(), 1, device)
