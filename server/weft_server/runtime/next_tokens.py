"""Where runs write what they say about each row's next token, and what the sampler gets of it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from weft_server.choosing.candidates import Candidates
from weft_server.runtime.buffers import Logits, NoRows, Output

if TYPE_CHECKING:
    from weft_server.runtime.blocks import Block
    from weft_server.runtime.device import Device


class NextTokens:
    """The candidates of each slot. Runs that are read as a whole give the normaliser and all logits too."""

    def __init__(self, num_slots: int, num_candidates: int, vocab: int, device: Device) -> None:
        self._in_place = device.in_place
        best = (num_slots, num_candidates)
        self._topk_logits = Output(np.zeros(best, np.float32), device)
        self._topk_ids = Output(np.zeros(best, np.int64), device)
        self._logsumexp = Output(np.zeros(num_slots, np.float32), device)
        self._logits = Logits(np.zeros((num_slots, vocab), np.float32), device)
        self._unknown = np.full(num_slots, np.nan, np.float32)
        self._seen: dict[tuple[int, bool], Candidates] = {}

    def blocks(self, num_rows: int, *, reads_all: bool) -> dict[str, Block]:
        """Where a run of `num_rows` rows writes."""
        blocks = {"topk_logits": self._topk_logits.block(num_rows), "topk_ids": self._topk_ids.block(num_rows)}
        if reads_all:
            blocks |= {"logsumexp": self._logsumexp.block(num_rows), "logits": self._logits.block(num_rows)}
        return blocks

    def read(self, num_written: int, num_rows: int, *, reads_all: bool) -> Candidates:
        """Return what the last run wrote, cut to the rows that count. In place, that is always the same memory."""
        key = (num_rows, reads_all)
        if key in self._seen:
            return self._seen[key]
        candidates = Candidates(
            self._topk_logits.read(num_written)[:num_rows],
            self._topk_ids.read(num_written)[:num_rows],
            self._logsumexp.read(num_written)[:num_rows] if reads_all else self._unknown[:num_rows],
            self._logits.read(num_rows) if reads_all else NoRows(),
        )
        if self._in_place:
            self._seen[key] = candidates
        return candidates
