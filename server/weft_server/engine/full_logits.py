"""Whether a decoder's run is asked for more of each row than its best candidates."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from weft_proto.bundle_rules import READS_ALL
from weft_server.runtime.blocks import block_of
from weft_server.runtime.cuda.drawing import TEMPERATURES

if TYPE_CHECKING:
    from weft_proto.v1 import bundle_pb2
    from weft_server.engine.slots import Slots
    from weft_server.runtime.blocks import Block
    from weft_server.runtime.session import Session


class FullLogits:
    """What the runs of one decoder are told of it."""

    def __init__(
        self, manifest: bundle_pb2.BundleManifest, decoder: Session, best: Session | None, num_candidates: int
    ) -> None:
        """`best` has the same graph for steps that are asked for nothing but the best candidates, if there is one."""
        # There are two cases in which each run computes all:
        # 1. There is no way to ask for less: no port, and no other graph.
        # 2. Every candidate might be an end token that must not come yet. Then even a greedy row may need all logits.
        self._asks = READS_ALL in decoder.input_names
        self.always_all = not (self._asks or best) or len(manifest.text.end_ids) >= num_candidates
        self._flags = {flag: np.array([flag], np.int32) for flag in (False, True)}
        self._decoder = decoder
        self._best = best
        # What a run gives of each row that is read as a whole, and whether it says what all tokens weigh.
        self.weighs = TEMPERATURES in decoder.input_names
        self.num_candidates = decoder.width("topk_ids") if self.weighs else num_candidates
        # Candidates of a row that is asked for nothing else.
        self.num_best = best.width("topk_ids") if best else num_candidates
        # Runs that read prompts. The rest is little for their few rows, and the other graph would be warmed for them.
        self.prompts_read_all = self.always_all or best is not None

    def reads_all(self, slots: Slots, rows: slice | np.ndarray) -> bool:
        """Whether one of some rows needs more of a run than its best candidates."""
        return self.always_all or bool(np.count_nonzero(slots.reads_all[rows]))

    def session(self, *, reads_all: bool) -> Session:
        """The graph of such a run."""
        return self._decoder if reads_all or not self._best else self._best

    @property
    def readings(self) -> list[bool]:
        """Whether runs read all logits: both kinds, if there are two."""
        return [False] if self.always_all else [False, True]

    def columns(self, columns: dict[str, Block], *, reads_all: bool) -> dict[str, Block]:
        """Return those of a lane's columns that such a run reads."""
        return {name: block for name, block in columns.items() if reads_all or name != TEMPERATURES}

    def told(self, *, reads_all: bool) -> dict[str, Block]:
        """What such a run reads of it on the host."""
        return {READS_ALL: block_of(self._flags[reads_all])} if self._asks else {}
