"""A weight that several tensors of the files stand for, and how integers are taken out of larger ones."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass

import torch
from torch import Tensor

from weft_export.checkpoints.weights import Entry
from weft_export.converters.tensors import NamedTensors
from weft_export.errors import CheckpointError

WORD = 32
"""Bits of the integers that smaller ones are packed into."""


@dataclass(frozen=True)
class StoredProduct:
    """A weight [outputs, inputs] of a linear layer, or those of all experts [experts, inputs, outputs].

    used: the tensors of the files that stand for it, and those beside them that it does not need.
    read: makes it, in float32.
    is_even: blocks of 32 of its inputs have 4 bits, one scale of float16, and nothing else.
    """

    name: str
    shape: tuple[int, ...]
    used: tuple[str, ...]
    read: Callable[[], Tensor]
    is_even: bool = False

    @property
    def entry(self) -> Entry:
        """What a header would say of it."""
        return Entry(self.shape, "F32")


class Parts:
    """The tensors of one layer, `LAYER.part` each."""

    def __init__(self, stored: NamedTensors, layer: str) -> None:
        self._stored, self.layer = stored, layer
        self.used: list[str] = []

    def __contains__(self, part: str) -> bool:
        return f"{self.layer}.{part}" in self._stored.entries

    def taken(self, part: str, types: Iterable[str], shape: tuple[int, ...]) -> Callable[[], Tensor]:
        """Return what reads a part, as it is stored.

        Raises:
            CheckpointError: it is missing, or of another type or shape.
        """
        name = f"{self.layer}.{part}"
        entry = self._stored.entries.get(name)
        if entry is None:
            raise CheckpointError(f"the tensor {name} is missing")
        if entry.shape != shape or entry.data_type not in types:
            raise CheckpointError(
                f"the tensor {name} is {entry.data_type} {list(entry.shape)}; it must be"
                f" {' or '.join(types)} {list(shape)}"
            )
        self.used.append(name)
        return self._stored.reader(name)

    def shape_of(self, part: str) -> tuple[int, int]:
        """Return the shape of a part that is a matrix. CheckpointError where it is missing, or is none."""
        shape = self.any_shape(part)
        if len(shape) != 2 or not all(shape):
            raise CheckpointError(f"the tensor {self.layer}.{part} is no matrix")
        return shape[0], shape[1]

    def any_shape(self, part: str) -> tuple[int, ...]:
        """Return the shape of a part. CheckpointError where it is missing."""
        entry = self._stored.entries.get(f"{self.layer}.{part}")
        if entry is None:
            raise CheckpointError(f"the tensor {self.layer}.{part} is missing")
        return entry.shape

    def left(self, part: str) -> None:
        """Say of a part, where there is one, that the weight does not need it."""
        if part in self:
            self.used.append(f"{self.layer}.{part}")

    def data_type(self, part: str) -> str:
        """Return the data type of a part that is there."""
        return self._stored.entries[f"{self.layer}.{part}"].data_type


def layers_with(stored: NamedTensors, part: str) -> list[str]:
    """Return the layers that have a part."""
    return sorted(name.removesuffix(f".{part}") for name in stored.entries if name.endswith(f".{part}"))


def unpacked(words: Tensor, bits: int, axis: int) -> Tensor:
    """Take integers of 2, 4 or 8 bits out of int32, the lowest bits first: uint8, so many times as long on an axis."""
    parts = [(words >> shift & (1 << bits) - 1).to(torch.uint8) for shift in range(0, WORD, bits)]
    return torch.stack(parts, dim=axis + 1).flatten(axis, axis + 1)
