"""What a lane sends to its device, and what it reads back.

Columns are arrays of the host that runs read. Outputs are what runs write and the host reads. Where runs work in the
host's memory, both are plain arrays. They are bound where they lie, and nothing is copied.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from weft_server.runtime.blocks import FLOAT, block_of
from weft_server.runtime.copies import Copies
from weft_server.runtime.session import Value

if TYPE_CHECKING:
    from weft_server.choosing.candidates import LogitRows
    from weft_server.runtime.blocks import Block
    from weft_server.runtime.device import Device


class Column:
    """An array [rows, ...] of the host that runs read."""

    def __init__(self, array: np.ndarray, device: Device) -> None:
        self._array = array
        self._value = None if device.in_place else Value.like(array, device)
        self.block: Block = self._value.block if self._value else block_of(array)

    def send(self) -> None:
        """Let the next runs see the array as it is now."""
        if self._value:
            self._value.send(self._array)


class Output:
    """A tensor [slots, ...] of which a run writes the first rows, and the host reads them."""

    def __init__(self, array: np.ndarray, device: Device) -> None:
        self._array = array
        self._device = device
        # On a device there is a tensor for each number of rows. So no more is fetched than was written.
        self._values: dict[int, Value] = {}

    def block(self, num_rows: int) -> Block:
        """Where a run of `num_rows` rows writes."""
        if self._device.in_place:
            return block_of(self._array[:num_rows])
        if num_rows not in self._values:
            self._values[num_rows] = Value.like(self._array[:num_rows], self._device)
        return self._values[num_rows].block

    def read(self, num_rows: int) -> np.ndarray:
        """Return what the last run of `num_rows` rows wrote, valid until the next run."""
        return self._array[:num_rows] if self._device.in_place else self._values[num_rows].fetch()


class Logits:
    """All logits [slots, vocab], of which a run writes the first rows. On a device they stay there."""

    def __init__(self, array: np.ndarray, device: Device) -> None:
        self._array = array
        self._far = None if device.in_place else FarRows(array.shape[0], array.shape[1], device)

    def block(self, num_rows: int) -> Block:
        """Where a run of `num_rows` rows writes."""
        return (self._far.block if self._far else block_of(self._array)).rows(0, num_rows)

    def read(self, num_rows: int) -> LogitRows:
        """Return the first `num_rows` rows, valid until the next run."""
        return self._far or self._array[:num_rows]


class NoRows:
    """Stands for logits that a run was not asked for."""

    shape = (0, 0)

    def __getitem__(self, row: int) -> np.ndarray:
        """Refuse."""
        raise AssertionError(f"the logits of row {row} were not asked for. This is a bug.")


class FarRows:
    """Rows [slots, vocab] in a device's memory. Only a row that is asked for is fetched."""

    def __init__(self, num_slots: int, vocab: int, device: Device) -> None:
        self.shape = (num_slots, vocab)
        self._value = Value(self.shape, FLOAT, device)
        self.block = self._value.block
        self._copies = Copies(1, device)

    def __getitem__(self, row: int) -> np.ndarray:
        """Fetch one row, [vocab]."""
        fetched = np.empty(self.shape[1:], np.float32)
        self._copies.run([(self.block.rows(row, row + 1), block_of(fetched))])
        return fetched
