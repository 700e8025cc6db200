"""Drafts of the next tokens of a text, from what stands in it already."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

# How many of the last tokens are looked for, the longest first.
_NGRAMS = (3, 2)


class Drafts(NamedTuple):
    """Tokens that may come next, int64 [n], and how many of the last tokens were found before them: 0 if none were."""

    token_ids: np.ndarray
    num_matched: int


def look_up(history: np.ndarray, most: int) -> Drafts:
    """Return `most` tokens that may follow `history`, int64 [tokens]: those that did where its end stood before.

    "Prompt Lookup Decoding" (Saxena 2023). Of several such places, the last one counts. Without one there are no
    drafts. A draft that reaches the end of the text goes on with its own beginning, as a text that repeats itself does.
    """
    for size in _NGRAMS:
        end = len(history) - size
        if end < 1:
            continue
        # Where the last token stands before its own place, and those before it stand before that.
        found = history[size - 1 : -1] == history[-1]
        for back in range(2, size + 1):
            found &= history[size - back : -back] == history[-back]
        places = np.flatnonzero(found)
        if len(places):
            return Drafts(np.resize(history[places[-1] + size :], most), size)
    return Drafts(history[:0], 0)
