"""How many tokens a lane's only row drafts, and what becomes of them.

A run of several tokens reads all weights once, so it takes little longer than a run of one. The row's own prompt and
answer say what may come next. The run then says what does come behind each of these drafts, and those that are right
are given at once. Where a run of several tokens has the bits of as many runs of one, no answer changes by a bit.
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

# A match of so many tokens is worth a try, whatever came of those before.
_LONG_MATCH = 3
_NO_DRAFTS = np.zeros(0, np.int64)


class Speculation:
    """What the rows of a lane draft when they run alone, at most `most` tokens in a run."""

    def __init__(self, slots: Slots, *, max_total: int, most: int, metrics: ModelMetrics) -> None:
        self._slots = slots
        self._max_total = max_total
        self._most = most
        self._metrics = metrics

    def drafts(self) -> np.ndarray:
        """Return what the only row may say behind its input id, int64 [drafts]; empty where a plain step is better.

        A row of a beam search drafts nothing: its search moves the tokens. Nor does one with an adapter, whose products
        have not been tried.
        """
        slots = self._slots
        num_new, past = int(slots.num_new[0]), int(slots.past_lengths[0])
        # The last token of an answer is not read, and a run writes behind its past.
        most = min(self._most, int(slots.max_new[0]) - num_new - 1, self._max_total - past - 1)
        if most < 1 or slots.is_beam[0] or slots.adapters[0] != NONE:
            return _NO_DRAFTS
        source = slots.sequence_in(0).source
        assert isinstance(source, Ids), "a prompt is no ids. This is a bug."
        found = look_up(np.concatenate((source.array, slots.output_ids[0, :num_new])), most)
        size = self._most >> int(slots.num_missed[0])
        if not size and found.num_matched >= _LONG_MATCH:
            size = 1
        return found.token_ids[: min(size, most)]

    def note(self, num_drafts: int, num_accepted: int) -> None:
        """Count what became of a run's drafts.

        The row drafts half as many if none was right, and all again if all were. Where that leaves none, it still tries
        one behind a long match.
        """
        self._metrics.draft_tokens.inc(num_drafts)
        self._metrics.accepted_tokens.inc(num_accepted)
        slots = self._slots
        if not slots.num_running:
            return
        if not num_accepted:
            slots.num_missed[0] += 1
        elif num_accepted == num_drafts:
            slots.num_missed[0] = 0
