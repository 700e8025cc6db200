"""Makes tokens that have come, or those of the source, less probable or more (Keskar et al. 2019)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from weft_server.logits_processors.base import LogitsProcessor, Stateless, inserted, places
from weft_server.logits_processors.history import NO_IDS

if TYPE_CHECKING:
    from weft_server.logits_processors.arrays import Floats, Ints
    from weft_server.logits_processors.history import History


@dataclass(frozen=True)
class RepetitionPenalty:
    """A penalty on what the decoder has read or produced: transformers' RepetitionPenaltyLogitsProcessor."""

    penalty: float

    def begin(self, history: History) -> LogitsProcessor:
        """Begin with the prompt, or the start token."""
        return _Seen(self.penalty, np.unique(history.read))


@dataclass(frozen=True)
class SourceRepetitionPenalty:
    """The opposite for the source's tokens: transformers' EncoderRepetitionPenaltyLogitsProcessor."""

    penalty: float

    def begin(self, history: History) -> LogitsProcessor:
        """Begin with the source. It never changes."""
        return _Penalty(1 / self.penalty, np.unique(history.source))


class _Penalty(Stateless):
    """Divides positive scores of some tokens, and multiplies negative ones. `tokens` are ascending, each once."""

    def __init__(self, penalty: float, tokens: Ints) -> None:
        self._penalty = penalty
        self._tokens = tokens

    def apply(self, ids: Ints | None, scores: Floats, history: History) -> None:  # noqa: ARG002 - the protocol's
        """Change the tokens' scores."""
        where, _ = places(ids, self._tokens, len(scores))
        penalty = np.float32(self._penalty)
        old = scores[where]
        scores[where] = np.where(old < 0, old * penalty, old / penalty)

    def raised(self, history: History) -> Ints:  # noqa: ARG002 - the protocol's
        """All of them, where the penalty is below 1."""
        return self._tokens if self._penalty < 1 else NO_IDS

    def touched(self, history: History) -> Ints:  # noqa: ARG002 - the protocol's
        """All of them."""
        return self._tokens


class _Seen(_Penalty):
    """The tokens are those that have come."""

    def advance(self, token: int, history: History) -> None:  # noqa: ARG002 - the protocol's
        """Add a token, unless it is there."""
        place = int(np.searchsorted(self._tokens, token))
        if place == len(self._tokens) or self._tokens[place] != token:
            # A new array: a copy of this row may share the old one.
            self._tokens = inserted(self._tokens, place, token)

    def fork(self) -> _Seen:
        """Return a copy that notes its own tokens."""
        return _Seen(self._penalty, self._tokens)
