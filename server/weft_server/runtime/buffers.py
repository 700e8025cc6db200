"""What a lane sends to its device, and what it reads back.

Columns are arrays of the host that runs read. Outputs are what runs write and the host reads. Where runs work in the
host's memory, both are plain arrays. They are bound where they lie, and nothing is copied. On a device those of a run
lie side by side, so that one transfer takes them there, and one brings them back.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from weft_server.runtime.blocks import FLOAT, Block, block_of, element_type_of
from weft_server.runtime.cuda.copies import Copies
from weft_server.runtime.session import Value

if TYPE_CHECKING:
    from collections.abc import Mapping

    from weft_server.runtime.device import Device
    from weft_server.sampling.candidates import LogitRows

# Where an array of a parcel may begin: as CUDA's own allocations do.
_ALIGNMENT = 256


class Parcel:
    """Arrays by name, side by side in one tensor of a device, which a single transfer sends or fetches."""

    def __init__(self, arrays: Mapping[str, np.ndarray], device: Device) -> None:
        """Like these arrays. Their content is not sent."""
        self._arrays = dict(arrays)
        ends = np.cumsum([-(-array.nbytes // _ALIGNMENT) * _ALIGNMENT for array in arrays.values()]).tolist()
        self._starts = dict(zip(arrays, [0, *ends[:-1]], strict=True))
        self._bytes = np.zeros(ends[-1], np.uint8)
        self._value = Value.like(self._bytes, device)
        self._views = self._cut(self._bytes)
        pointer = self._value.block.pointer
        self.blocks = {
            name: Block(
                pointer + self._starts[name],
                array.shape,
                element_type_of(array.dtype),
                array.itemsize,
                device,
                self._value,
            )
            for name, array in arrays.items()
        }

    def send(self, arrays: Mapping[str, np.ndarray]) -> None:
        """Copy arrays of these names, shapes and types to the device."""
        for name, array in arrays.items():
            self._views[name][...] = array
        self._value.send(self._bytes)

    def fetch(self) -> dict[str, np.ndarray]:
        """Copy the arrays to the host."""
        return self._cut(self._value.fetch())

    def _cut(self, together: np.ndarray) -> dict[str, np.ndarray]:
        return {
            name: together[start : start + self._arrays[name].nbytes]
            .view(self._arrays[name].dtype)
            .reshape(self._arrays[name].shape)
            for name, start in self._starts.items()
        }


class Columns:
    """Arrays [rows, ...] of the host that runs read, by port. Where runs read them whole, they may differ in rows."""

    def __init__(self, arrays: Mapping[str, np.ndarray], device: Device) -> None:
        self._arrays = arrays
        self._parcel = None if device.in_place else Parcel(arrays, device)
        self._blocks = self._parcel.blocks if self._parcel else {name: block_of(each) for name, each in arrays.items()}

    def rows(self, start: int, stop: int) -> dict[str, Block]:
        """Where a run reads the rows [start, stop)."""
        return {name: block.rows(start, stop) for name, block in self._blocks.items()}

    def whole(self) -> dict[str, Block]:
        """Where a run reads all rows."""
        return self._blocks

    def send(self) -> None:
        """Let the next runs see the arrays as they are now."""
        if self._parcel:
            self._parcel.send(self._arrays)


class Outputs:
    """Tensors [slots, ...], by port, of which a run writes the first rows, and the host reads them."""

    def __init__(self, arrays: Mapping[str, np.ndarray], device: Device) -> None:
        self._arrays = arrays
        self._device = device
        # On a device there is a parcel for each number of rows. So no more is fetched than was written.
        self._parcels: dict[int, Parcel] = {}

    def blocks(self, num_rows: int) -> dict[str, Block]:
        """Where a run of `num_rows` rows writes."""
        if self._device.in_place:
            return {name: block_of(array[:num_rows]) for name, array in self._arrays.items()}
        if num_rows not in self._parcels:
            rows = {name: array[:num_rows] for name, array in self._arrays.items()}
            self._parcels[num_rows] = Parcel(rows, self._device)
        return self._parcels[num_rows].blocks

    def read(self, num_rows: int) -> dict[str, np.ndarray]:
        """Return what the last run of `num_rows` rows wrote, valid until the next run."""
        if self._device.in_place:
            return {name: array[:num_rows] for name, array in self._arrays.items()}
        return self._parcels[num_rows].fetch()


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
