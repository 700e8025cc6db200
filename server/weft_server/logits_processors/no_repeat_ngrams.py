"""Lets no sequence of n tokens come twice, or none that the source has.

transformers: NoRepeatNGramLogitsProcessor and EncoderNoRepeatNGramLogitsProcessor.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from weft_server.logits_processors.base import Bans, once
from weft_server.logits_processors.history import NO_IDS

if TYPE_CHECKING:
    from weft_server.logits_processors.arrays import Ints
    from weft_server.logits_processors.history import History


class NoRepeat(Bans):
    """No `size` tokens that the decoder has read or produced come again."""

    def __init__(self, size: int) -> None:
        """Begin with a size of 1 or more."""
        self._size = size

    def now(self, history: History) -> Ints:
        """What has come behind the last size - 1 tokens."""
        return _behind(self._tokens(history), history.read, self._size)

    def _tokens(self, history: History) -> Ints:
        return history.read


class NoSourceRepeat(NoRepeat):
    """No `size` tokens of the source come."""

    def _tokens(self, history: History) -> Ints:
        return history.source


def _behind(tokens: Ints, read: Ints, size: int) -> Ints:
    """Return what comes in `tokens` behind the last size - 1 of `read`, ascending and each once.

    It takes a comparison of all tokens, and of fewer and fewer for each further token of the sequence.
    """
    if len(tokens) < size or len(read) < size - 1:
        return NO_IDS
    at = np.arange(size - 1, len(tokens))
    for back in range(1, size):
        at = at[tokens[at - back] == read[-back]]
        if not len(at):
            return NO_IDS
    return once([tokens[at]])
