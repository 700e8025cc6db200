"""Keeps tokens out: always, where a phrase would end, while an answer is short; or all but some."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from weft_server.logits_processors.base import BARRED, Bans, Stateless, once
from weft_server.logits_processors.history import NO_IDS
from weft_server.logits_processors.phrase_endings import PhraseEndings

if TYPE_CHECKING:
    from collections.abc import Iterable
    from collections.abc import Sequence as Many

    from weft_server.logits_processors.arrays import Floats, Ints
    from weft_server.logits_processors.history import History


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
        self._endings = PhraseEndings(phrases)
        # What must never come.
        self._alone = np.unique(self._endings.tokens[self._endings.singles])

    def now(self, history: History) -> Ints:
        """The tokens with which a phrase would end."""
        found = self._endings.now(history.read)
        return once([self._alone, self._endings.tokens[found]]) if found else self._alone


class AllowedTokens(Stateless):
    """Forbids all tokens but some."""

    def __init__(self, tokens: Iterable[int]) -> None:
        """Begin with tokens in any order."""
        self._tokens = np.unique(np.fromiter(tokens, np.int64))

    def apply(self, ids: Ints | None, scores: Floats, history: History) -> None:  # noqa: ARG002 - the protocol's
        """Give all others a score of -inf."""
        every = np.arange(len(scores)) if ids is None else ids
        scores[~np.isin(every, self._tokens)] = BARRED

    def touched(self, history: History) -> Ints | None:  # noqa: ARG002 - the protocol's
        """Nearly all."""
        return None
