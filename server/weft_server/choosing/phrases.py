"""Phrases of tokens: with which tokens some of them would end now."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Iterable
    from collections.abc import Sequence as Many

    from weft_server.choosing.arrays import Ints


class Endings:
    """Finds the phrases whose tokens but the last have just come. It costs a look-up for each length of a phrase."""

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
        self._by_length = by_length

    def now(self, read: Ints) -> Ints:
        """Return the numbers of the phrases that one more token would end: single tokens first, then by length."""
        found: list[int] = []
        for length, phrases in self._by_length.items():
            if length <= len(read):
                found += phrases.get(tuple(read[-length:].tolist()), ())
        return np.concatenate([self.singles, np.array(found, np.int64)]) if found else self.singles
