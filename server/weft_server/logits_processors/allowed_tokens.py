"""Lets one of a few tokens come, and no other."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from weft_server.logits_processors.base import BARRED, Stateless

if TYPE_CHECKING:
    from collections.abc import Iterable

    from weft_server.logits_processors.arrays import Floats, Ints
    from weft_server.logits_processors.history import History


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
