"""How many tokens a lane's last row drafts, and what becomes of them.

A run of several tokens reads all weights once, so it takes little longer than a run of one. The row's own prompt or
source, and its answer, say what may come next. The run then says what does come behind each of these drafts, and those
that are right are given at once. Where a run of several tokens has the bits of as many runs of one, no answer changes
by a bit.

The row runs alone, or beside others in a mixed run. There a run with drafts makes all of them wait.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from weft_server.engine.prompt_lookup import look_up
from weft_server.runtime.adapter_stack import NONE
from weft_server.source import Ids

if TYPE_CHECKING:
    from weft_server.engine.slots import Slots
    from weft_server.telemetry.model_metrics import ModelMetrics

# A match of so many tokens is worth a try, whatever came of those before. Beside others no shorter one is.
_LONG_MATCH = 3
# Beside more rows than these, what drafts of one of them gain is less than what all others wait for it.
_MOST_BESIDE = 7
_NO_DRAFTS = np.zeros(0, np.int64)


class Speculation:
    """What the last row of a lane drafts, at most `most` tokens in a run."""

    def __init__(
        self,
        slots: Slots,
        *,
        max_total: int,
        most: int,
        metrics: ModelMetrics,
        vocab_size: int,
        has_memory: bool = False,
        beside: bool = False,
    ) -> None:
        """A draft is below `vocab_size`, that of answers. A source may have ids beyond.

        `has_memory`: a row attends to what an encoder made of its source. `beside`: a row may draft beside others.
        """
        self.beside = beside
        self._slots = slots
        self._max_total = max_total
        self._most = most
        self._vocab_size = vocab_size
        self._has_memory = has_memory
        self._metrics = metrics

    def drafts(self, room: int) -> np.ndarray:
        """Return what the last row may say behind its input id, int64 [drafts], at most `room`; empty for a plain step.

        A row of a beam search drafts nothing: its search moves the tokens. Nor does one with an adapter, whose products
        have not been tried. Nor does one whose answer has not begun: it may still be fed what stands before that.
        """
        slots, row = self._slots, self._slots.num_running - 1
        num_new, past = int(slots.num_new[row]), int(slots.past_lengths[row])
        # The last token of an answer is not read, and a run writes behind its past.
        most = min(room, self._most, int(slots.max_new[row]) - num_new - 1, self._max_total - past - 1)
        if self._has_memory:
            # The operator that attends to a memory takes no more new tokens than that has places.
            most = min(most, int(slots.memory_lengths[row]) - 1)
        if most < 1 or not num_new or slots.adapters[row] != NONE or not self._may_draft(row):
            return _NO_DRAFTS
        source = slots.sequence_in(row).source
        assert isinstance(source, Ids), "a prompt is no ids. This is a bug."
        found = look_up(np.concatenate((source.array, slots.output_ids[row, :num_new])), most)
        size = self._most >> int(slots.num_missed[row])
        if found.num_matched >= _LONG_MATCH:
            size = max(size, 1)
        elif row:
            return _NO_DRAFTS
        token_ids = found.token_ids[: min(size, most)]
        unknown = np.flatnonzero(token_ids >= self._vocab_size)
        return token_ids[: unknown[0]] if len(unknown) else token_ids

    def _may_draft(self, row: int) -> bool:
        """Whether its tokens are its own to take, also without those of the rows before it."""
        slots = self._slots
        if not row:
            return not slots.is_beam[0]
        return row <= _MOST_BESIDE and slots.sequence_in(row).width == 1 and not slots.is_beam[: row + 1].any()

    def note(self, row: int, num_drafts: int, num_accepted: int) -> None:
        """Count what became of a run's drafts, which a row had as the last one.

        The row drafts half as many if none was right, and all again if all were. Where that leaves none, it still tries
        one behind a long match.
        """
        self._metrics.draft_tokens.inc(num_drafts)
        self._metrics.accepted_tokens.inc(num_accepted)
        slots = self._slots
        if slots.num_running <= row:
            return
        if not num_accepted:
            slots.num_missed[row] += 1
        elif num_accepted == num_drafts:
            slots.num_missed[row] = 0
