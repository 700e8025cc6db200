"""Keeps tokens out: some always, some where a phrase would end with them, some while an answer is short."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from weft_server.logits_processors.base import Bans, once
from weft_server.logits_processors.history import NO_IDS
from weft_server.logits_processors.phrase_endings import PhraseEndings

if TYPE_CHECKING:
    from collections.abc import Iterable
    from collections.abc import Sequence as Many

    from weft_server.logits_processors.arrays import Ints
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
