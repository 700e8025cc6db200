"""Adds to the scores of tokens, or of a phrase's last token: transformers' SequenceBiasLogitsProcessor."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from weft_server.choosing.phrases import Endings
from weft_server.choosing.rules import Stateless, places

if TYPE_CHECKING:
    from collections.abc import Iterable
    from collections.abc import Sequence as Many

    from weft_server.choosing.arrays import Floats, Ints
    from weft_server.choosing.history import History


class Bias(Stateless):
    """What is added for several phrases that end with the same token is summed first, in float32."""

    def __init__(self, biases: Iterable[tuple[Many[int], float]]) -> None:
        """Begin with phrases of one token or more, and what is added for each."""
        biases = list(biases)
        self._endings = Endings(phrase for phrase, _ in biases)
        self._added = np.array([added for _, added in biases], np.float32)
        # What single tokens get, where no longer phrase would end.
        self._alone: tuple[Ints, Floats] = self._sum(self._endings.singles)

    def apply(self, ids: Ints | None, scores: Floats, history: History) -> None:
        """Add."""
        tokens, added = self._now(history)
        where, which = places(ids, tokens, len(scores))
        scores[where] += added[which]

    def raised(self, history: History) -> Ints:
        """The tokens to which more than 0 is added."""
        tokens, added = self._now(history)
        return tokens[added > 0]

    def touched(self, history: History) -> Ints:
        """The tokens to which something is added."""
        return self._now(history)[0]

    def _now(self, history: History) -> tuple[Ints, Floats]:
        """Return tokens, ascending and each once, and what is added to each."""
        numbers = self._endings.now(history.read)
        if len(numbers) == len(self._endings.singles):
            return self._alone
        return self._sum(numbers)

    def _sum(self, numbers: Ints) -> tuple[Ints, Floats]:
        tokens, which = np.unique(self._endings.tokens[numbers], return_inverse=True)
        added = np.zeros(len(tokens), np.float32)
        np.add.at(added, which, self._added[numbers])
        return tokens, added
