"""Phrases of tokens: with which tokens some of them would end now."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Iterable
    from collections.abc import Sequence as Many

    from weft_server.logits_processors.arrays import Ints


class PhraseEndings:
    """Finds the phrases whose tokens but the last have just come.

    It costs a look-up for the last token, and one for each length of the phrases that go on behind that token.
    """

    def __init__(self, phrases: Iterable[Many[int]]) -> None:
        """Take phrases of one token or more. A number of a phrase is its place in this order."""
        by_length: dict[int, dict[tuple[int, ...], list[int]]] = {}
        tokens = []
        for number, phrase in enumerate(phrases):
            *before, last = phrase
            by_length.setdefault(len(before), {}).setdefault(tuple(before), []).append(number)
            tokens.append(last)
        # The last token of each phrase.
        self.tokens: Ints = np.array(tokens, np.int64)
        # The numbers of the phrases of one token: they always end now.
        self.singles: Ints = np.array(by_length.pop(0, {}).get((), []), np.int64)
        # By the last token of what stands before the end: its lengths, in the order in which they came.
        self._lengths: dict[int, dict[int, None]] = {}
        for length, phrases_of in by_length.items():
            for before_end in phrases_of:
                self._lengths.setdefault(before_end[-1], {})[length] = None
        self.by_length = by_length
        self._longest = max(by_length, default=0)

    def now(self, read: Ints) -> list[int]:
        """Return the numbers of the longer phrases that one more token would end, by length. `singles` always do."""
        if not len(read) or (lengths := self._lengths.get(int(read[-1]))) is None:
            return []
        tail = tuple(read[-self._longest :].tolist())
        found: list[int] = []
        for length in lengths:
            if length <= len(tail):
                found += self.by_length[length].get(tail[-length:], ())
        return found
