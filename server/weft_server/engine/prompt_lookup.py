"""Drafts of the next tokens of a text, from what stands in it already."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np


class Drafts(NamedTuple):
    """Tokens that may come next, int64 [n], and how many of the last tokens were found before them: 0 if none were."""

    token_ids: np.ndarray
    num_matched: int


def look_up(history: np.ndarray, most: int) -> Drafts:
    """Return `most` tokens that may follow `history`, int64 [tokens]: those that did where its end stood before.

    "Prompt Lookup Decoding" (Saxena 2023). Its end is its last three tokens, or its last two where those three stand
    nowhere else. Of several such places, the last one counts. Without one there are no drafts. A draft that reaches the
    end of the text goes on with its own beginning, as a text that repeats itself does.
    """
    if len(history) < 3:
        return Drafts(history[:0], 0)
    # Where the last two tokens stand before their own place, by the second. Mostly they stand nowhere.
    pairs = np.flatnonzero((history[1:-1] == history[-1]) & (history[:-2] == history[-2])) + 1
    if not len(pairs):
        return Drafts(history[:0], 0)
    inner = pairs[pairs > 1]
    triples = inner[history[inner - 2] == history[-3]]
    places, size = (triples, 3) if len(triples) else (pairs, 2)
    return Drafts(np.resize(history[places[-1] + 1 :], most), size)
