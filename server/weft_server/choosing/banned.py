"""Keeps tokens out: some always, some where a phrase would end with them, some while an answer is short."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from weft_server.choosing.history import NO_IDS
from weft_server.choosing.phrases import Endings
from weft_server.choosing.rules import BARRED, Stateless, places

if TYPE_CHECKING:
    from collections.abc import Iterable
    from collections.abc import Sequence as Many

    from weft_server.choosing.arrays import Floats, Ints
    from weft_server.choosing.history import History


class Bans(Stateless):
    """Tokens that must not come now. Who derives from it says which."""

    def now(self, history: History) -> Ints:
        """Return the tokens that must not come next, ascending, each once."""
        raise NotImplementedError

    def apply(self, ids: Ints | None, scores: Floats, history: History) -> None:
        """Give them a score of -inf."""
        where, _ = places(ids, self.now(history), len(scores))
        scores[where] = BARRED

    def touched(self, history: History) -> Ints:
        """The tokens that must not come next."""
        return self.now(history)


class Suppressed(Bans):
    """Tokens that must not come while the answer has fewer than `until` tokens. None: never.

    transformers has SuppressTokensLogitsProcessor, SuppressTokensAtBeginLogitsProcessor, and for end tokens
    MinNewTokensLengthLogitsProcessor.
    """

    def __init__(self, tokens: Iterable[int], until: int | None = None) -> None:
        """Begin with tokens in any order."""
        self._tokens = np.unique(np.fromiter(tokens, np.int64))
        self._until = until

    def now(self, history: History) -> Ints:
        """All of them, or none."""
        return self._tokens if self._until is None or history.num_new < self._until else NO_IDS


class Banned(Bans):
    """Phrases that must not come: transformers' NoBadWordsLogitsProcessor, which lets an end token alone pass."""

    def __init__(self, phrases: Iterable[Many[int]]) -> None:
        """Begin with phrases of one token or more."""
        self._endings = Endings(phrases)
        # What must never come.
        self._alone = np.unique(self._endings.tokens[self._endings.singles])

    def now(self, history: History) -> Ints:
        """The tokens with which a phrase would end."""
        numbers = self._endings.now(history.read)
        if len(numbers) == len(self._endings.singles):
            return self._alone
        return np.unique(self._endings.tokens[numbers])
