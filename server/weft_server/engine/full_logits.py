"""Whether a decoder's run is asked for more of each row than its best candidates."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from weft_proto.bundle_rules import READS_ALL
from weft_server.runtime.blocks import block_of

if TYPE_CHECKING:
    from weft_proto.v1 import bundle_pb2
    from weft_server.engine.slots import Slots
    from weft_server.runtime.blocks import Block
    from weft_server.runtime.session import Session


class FullLogits:
    """What the runs of one decoder are told of it."""

    def __init__(self, manifest: bundle_pb2.BundleManifest, decoder: Session, num_candidates: int) -> None:
        # There are two cases in which each run computes all:
        # 1. The graph has no port to ask for less.
        # 2. Every candidate might be an end token that must not come yet. Then even a greedy row may need all logits.
        self._asks = READS_ALL in decoder.input_names
        self.always_all = not self._asks or len(manifest.text.end_ids) >= num_candidates
        self._flags = {flag: np.array([flag], np.int32) for flag in (False, True)}

    def reads_all(self, slots: Slots, rows: slice | np.ndarray) -> bool:
        """Whether one of some rows needs more of a run than its best candidates."""
        return self.always_all or bool(slots.reads_all[rows].any())

    def told(self, *, reads_all: bool) -> dict[str, Block]:
        """What such a run reads of it on the host."""
        return {READS_ALL: block_of(self._flags[reads_all])} if self._asks else {}
