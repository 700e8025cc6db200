"""The penalties of a Decoding: they change the scores of end tokens, and of those that have come or the source has.

Names of processors are those of transformers.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from weft_server.logits_processors.base import Bans, LogitsProcessor, Stateless, inserted, once, places
from weft_server.logits_processors.history import NO_IDS

if TYPE_CHECKING:
    from collections.abc import Iterable

    from weft_proto.v1 import common_pb2
    from weft_server.logits_processors.arrays import Floats, Ints
    from weft_server.logits_processors.base import Rule
    from weft_server.logits_processors.history import History


# What a score is multiplied by at most. A power would leave float32, and a token that is infinitely probable leaves no
# number to the others.
MAX_GROWTH = 1e30


def penalties_of(asked: common_pb2.Penalties) -> list[Rule]:
    """Return the rules that a request asks for, in transformers' order. What is not set reads as 0."""
    rules: list[Rule] = []
    if asked.encoder_repetition not in (0, 1):
        rules.append(SourceRepetitionPenalty(asked.encoder_repetition))
    if asked.repetition not in (0, 1):
        rules.append(RepetitionPenalty(asked.repetition))
    if asked.presence or asked.frequency:
        rules.append(PresencePenalty(asked.presence, asked.frequency))
    if asked.no_repeat_ngram_size:
        rules.append(NoRepeat(asked.no_repeat_ngram_size))
    if asked.encoder_no_repeat_ngram_size:
        rules.append(NoSourceRepeat(asked.encoder_no_repeat_ngram_size))
    return rules


@dataclass(frozen=True)
class RepetitionPenalty:
    """What the decoder has read or produced is less probable (Keskar et al. 2019): RepetitionPenaltyLogitsProcessor."""

    penalty: float

    def begin(self, history: History) -> LogitsProcessor:
        """Begin with the prompt, or the start token."""
        return _Seen(self.penalty, np.unique(history.read))


@dataclass(frozen=True)
class SourceRepetitionPenalty:
    """The opposite for the source's tokens: EncoderRepetitionPenaltyLogitsProcessor."""

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


@dataclass(frozen=True)
class PresencePenalty:
    """A penalty on tokens of the answer, not of a prompt: logit - presence - frequency * count, as in the OpenAI API.

    transformers has no such processor.
    """

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


class NoRepeat(Bans):
    """No `size` tokens that the decoder has read or produced come again: NoRepeatNGramLogitsProcessor."""

    def __init__(self, size: int) -> None:
        """Begin with a size of 1 or more."""
        self._size = size

    def now(self, history: History) -> Ints:
        """What has come behind the last size - 1 tokens."""
        return _behind(self._tokens(history), history.read, self._size)

    def _tokens(self, history: History) -> Ints:
        return history.read


class NoSourceRepeat(NoRepeat):
    """No `size` tokens of the source come: EncoderNoRepeatNGramLogitsProcessor."""

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


class LengthDecay(Stateless):
    """Makes end tokens more probable with each step behind a length: ExponentialDecayLengthPenalty.

    It adds |score| * (factor^(tokens behind start) - 1) to an end token's score. The factor may be below 1.
    """

    def __init__(self, start: int, factor: float, end_ids: Iterable[int]) -> None:
        """Begin behind `start` tokens of the answer."""
        self._start = start
        self._factor = factor
        self._ends = np.unique(np.fromiter(end_ids, np.int64))

    def apply(self, ids: Ints | None, scores: Floats, history: History) -> None:
        """Add. A token that must not come stays so."""
        where, _ = places(ids, self.touched(history), len(scores))
        old = scores[where]
        with np.errstate(invalid="ignore"):
            scores[where] = np.where(np.isfinite(old), old + np.abs(old) * np.float32(self._growth(history)), old)

    def raised(self, history: History) -> Ints:
        """The end tokens, once they gain."""
        return self.touched(history) if self._growth(history) > 0 else NO_IDS

    def touched(self, history: History) -> Ints:
        """The end tokens, once the answer has more than `start`."""
        return self._ends if history.num_new > self._start else NO_IDS

    def _growth(self, history: History) -> float:
        steps = max(history.num_new - self._start, 0)
        too_far = steps * math.log(self._factor) > math.log(MAX_GROWTH)
        return MAX_GROWTH if too_far else self._factor**steps - 1
