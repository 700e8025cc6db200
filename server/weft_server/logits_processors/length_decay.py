"""Makes end tokens more probable with each step behind a length: transformers' ExponentialDecayLengthPenalty."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np

from weft_server.logits_processors.base import Stateless, places
from weft_server.logits_processors.history import NO_IDS

if TYPE_CHECKING:
    from collections.abc import Iterable

    from weft_server.logits_processors.arrays import Floats, Ints
    from weft_server.logits_processors.history import History


# What a score is multiplied by at most. A power would leave float32, and a token that is infinitely probable leaves no
# number to the others.
MOST = 1e30


class LengthDecay(Stateless):
    """Adds |score| * (factor^(tokens behind start) - 1) to the score of an end token. It may be a factor below 1."""

    def __init__(self, start: int, factor: float, end_ids: Iterable[int]) -> None:
        """Begin behind `start` tokens of the answer."""
        self._start = start
        self._factor = factor
        self._ends = np.unique(np.fromiter(end_ids, np.int64))

    def apply(self, ids: Ints | None, scores: Floats, history: History) -> None:
        """Add. A token that must not come stays so."""
        where, _ = places(ids, self.touched(history), len(scores))
        old = scores[where]
        with np.errstate(invalid="ignore"):
            scores[where] = np.where(np.isfinite(old), old + np.abs(old) * np.float32(self._growth(history)), old)

    def raised(self, history: History) -> Ints:
        """The end tokens, once they gain."""
        return self.touched(history) if self._growth(history) > 0 else NO_IDS

    def touched(self, history: History) -> Ints:
        """The end tokens, once the answer has more than `start`."""
        return self._ends if history.num_new > self._start else NO_IDS

    def _growth(self, history: History) -> float:
        steps = max(history.num_new - self._start, 0)
        too_far = steps * math.log(self._factor) > math.log(MOST)
        return MOST if too_far else self._factor**steps - 1
