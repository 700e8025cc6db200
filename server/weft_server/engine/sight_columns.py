"""What runs read beside ids in a model whose prompts may hold pictures: features, and perhaps position offsets."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from weft_proto.bundle_rules import FEATURES, POSITION_OFFSETS
from weft_proto.sight import NUM_AXES, feature_width, offsets_positions
from weft_server.runtime.blocks import block_of
from weft_server.runtime.buffers import Columns

if TYPE_CHECKING:
    from weft_proto.v1 import bundle_pb2
    from weft_server.engine.slots import Slots
    from weft_server.runtime.blocks import Block
    from weft_server.runtime.device import Device


class SightColumns:
    """What runs of one lane that decode read: no features, and where each row stands. Without pictures it is nothing.

    width: that of features, 0 where there are none. offsets: whether a run is told position offsets.
    """

    def __init__(self, manifest: bundle_pb2.BundleManifest, slots: Slots) -> None:
        self._slots = slots
        self.width = feature_width(manifest)
        self.offsets = offsets_positions(manifest)

    def of_rows(self) -> dict[str, np.ndarray]:
        """What each row reads anew, by port."""
        return {POSITION_OFFSETS: self._slots.position_offsets} if self.offsets else {}

    def fixed(self, device: Device) -> Columns:
        """What every decode run reads, and is sent once: a token of each row, and no picture."""
        num_slots = self._slots.num_slots
        arrays: dict[str, np.ndarray] = {"lengths": np.ones(num_slots, np.int32)}
        if self.width:
            arrays[FEATURES] = np.zeros((num_slots, 1, self.width), np.float32)
        columns = Columns(arrays, device)
        columns.send()
        return columns


class DraftColumns:
    """What a run reads that verifies drafts of a row: the input id before them, and what stands beside."""

    def __init__(self, slots: Slots, sight: SightColumns, max_drafts: int) -> None:
        """A run reads at most `max_drafts` drafts."""
        self._slots = slots
        self._sight = sight
        self._ids = np.zeros((1, 1 + max_drafts), np.int64)
        # How many tokens come before each answer.
        self._ends = np.arange(1, 2 + max_drafts, dtype=np.int32)
        self._offsets = np.zeros((1, 1 + max_drafts, NUM_AXES), np.int64)

    def fill(self, slot: int, drafts: np.ndarray) -> None:
        """Take the drafts of the next run, int64 [n], of the row in a slot."""
        self._ids[0, 0], self._ids[0, 1 : 1 + len(drafts)] = self._slots.input_ids[slot, 0], drafts
        self._offsets[:] = self._slots.position_offsets[slot]

    def blocks(self, size: int) -> dict[str, Block]:
        """What a run of so many tokens reads, by port."""
        blocks = {"input_ids": block_of(self._ids[:, :size]), "lengths": block_of(self._ends[:size])}
        if self._sight.width:
            blocks[FEATURES] = block_of(np.zeros((1, size, self._sight.width), np.float32))
        if self._sight.offsets:
            blocks[POSITION_OFFSETS] = block_of(self._offsets[:, :size])
        return blocks
