"""Contiguous memory of the host or of a device: ports of graphs are bound to it."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, NamedTuple

import onnx

from weft_server.runtime.device import HOST

if TYPE_CHECKING:
    import numpy as np

    from weft_server.runtime.device import Device

FLOAT: int = onnx.TensorProto.FLOAT


@dataclass(frozen=True, slots=True)
class Block:
    """Contiguous memory of the host or of a device, as a tensor [rows, ...]."""

    pointer: int
    shape: tuple[int, ...]
    element_type: int  # as onnx.TensorProto.DataType, because numpy has no bfloat16
    item_bytes: int
    device: Device
    owner: object  # lives as long as the block, because a binding holds no reference of its own

    @property
    def num_bytes(self) -> int:
        """Bytes of all of it."""
        return math.prod(self.shape) * self.item_bytes

    def rows(self, start: int, stop: int) -> Block:
        """Rows [start, stop), where they lie."""
        assert 0 <= start <= stop <= self.shape[0], f"rows [{start}, {stop}) of {self.shape}. This is a bug."
        row_bytes = math.prod(self.shape[1:]) * self.item_bytes
        return replace(self, pointer=self.pointer + start * row_bytes, shape=(stop - start, *self.shape[1:]))

    def words(self, *shape: int) -> Block:
        """The same bytes as float32 [shape...], for copies that keep all bits whatever they mean."""
        assert math.prod(shape) * 4 == self.num_bytes, f"{self.shape} is not {shape} in words. This is a bug."
        return replace(self, shape=shape, element_type=FLOAT, item_bytes=4)


class SharedWeights(NamedTuple):
    """Weights in a device's memory that several sessions of a graph read. Each would otherwise have its own.

    Attributes:
        folder: where the files are that the graph names.
        values: what ONNX Runtime takes in the place of an initializer, by name. These hold no memory.
        blocks: the memory.
    """

    folder: str
    values: dict[str, Any]
    blocks: list[Block]


def block_of(array: np.ndarray) -> Block:
    """Return an array's own memory."""
    assert array.flags.c_contiguous, "only contiguous memory can be bound. This is a bug."
    return Block(array.ctypes.data, array.shape, element_type_of(array.dtype), array.itemsize, HOST, array)


def element_type_of(dtype: np.dtype[Any]) -> int:
    """Return the number that ONNX gives to a numpy type."""
    return int(onnx.helper.np_dtype_to_tensor_dtype(dtype))
