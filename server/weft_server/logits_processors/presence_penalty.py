"""Takes from the scores of tokens that the answer has: once, and for each time that it has them.

transformers has no such processor. The rule is that of the OpenAI API: logit - presence - frequency * count.
"""

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
class PresencePenalty:
    """A penalty on tokens of the answer, not of a prompt."""

    presence: float
    frequency: float

    def begin(self, history: History) -> LogitsProcessor:  # noqa: ARG002 - the protocol's
        """Begin with an empty answer."""
        return _Counted(self, NO_IDS, NO_IDS)


class _Counted(Stateless):
    """How often each token has come. `tokens` are ascending, each once."""

    def __init__(self, rule: PresencePenalty, tokens: Ints, counts: Ints) -> None:
        self._rule = rule
        self._tokens = tokens
        self._counts = counts

    def apply(self, ids: Ints | None, scores: Floats, history: History) -> None:  # noqa: ARG002 - the protocol's
        """Take the penalties."""
        where, which = places(ids, self._tokens, len(scores))
        scores[where] -= self._penalties()[which]

    def raised(self, history: History) -> Ints:  # noqa: ARG002 - the protocol's
        """The tokens whose penalty is below 0."""
        return self._tokens[self._penalties() < 0]

    def touched(self, history: History) -> Ints:  # noqa: ARG002 - the protocol's
        """The tokens of the answer."""
        return self._tokens

    def advance(self, token: int, history: History) -> None:  # noqa: ARG002 - the protocol's
        """Count a token. The arrays are new ones: a copy of this row may share the old ones."""
        place = int(np.searchsorted(self._tokens, token))
        if place == len(self._tokens) or self._tokens[place] != token:
            self._tokens = inserted(self._tokens, place, token)
            self._counts = inserted(self._counts, place, 0)
        self._counts = self._counts + (self._tokens == token)

    def fork(self) -> _Counted:
        """Return a copy that counts its own tokens."""
        return _Counted(self._rule, self._tokens, self._counts)

    def _penalties(self) -> Floats:
        return (self._rule.presence + self._rule.frequency * self._counts).astype(np.float32)
