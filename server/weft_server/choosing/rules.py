"""What a request's rules ask of each token, and the state that they have in one row.

A rule belongs to a request, and all its rows share it. It begins a processor in each row. Processors change scores one
token at a time: what a token gets depends on its own score and on the row's history, never on other tokens' scores. So
they can be asked about a few candidates as well as about the whole vocabulary.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

import numpy as np

from weft_server.choosing.history import NO_IDS

if TYPE_CHECKING:
    from weft_server.choosing.arrays import Floats, Ints
    from weft_server.choosing.history import History
    from weft_server.errors import RequestError


BARRED = np.float32(-np.inf)


class Processor(Protocol):
    """One rule in one row."""

    def apply(self, ids: Ints | None, scores: Floats, history: History) -> None:
        """Change `scores` in place: scores[i] is that of the token ids[i]. No ids: of the token i, for all tokens.

        Scores are logits. In a beam search they are log-probabilities. One of -inf stays so: the token must not come.
        """

    def raised(self, history: History) -> Ints | None:
        """The tokens whose scores may rise now. All others only fall, or stay. None: any may rise."""

    def touched(self, history: History) -> Ints | None:
        """The tokens whose scores may change now, `raised` among them. None: any may."""

    def advance(self, token: int, history: History) -> None:
        """Take note of the row's next token. It stands in the history already."""

    def fork(self) -> Processor:
        """Return a copy for a row that goes its own way from here."""

    def refusal(self, *, ends: bool) -> RequestError | None:
        """Return why the row cannot go on, or None. `ends`: its last token is an end that was chosen."""

    def close(self) -> None:
        """Stop what goes on beside the lane. Nothing else is asked any more."""


class Rule(Protocol):
    """What a request asks for, in all its rows."""

    def begin(self, history: History) -> Processor:
        """Return what does it in one row, which has been given what stands in its history."""


class Stateless:
    """A rule that is its own processor: it needs nothing but the history. It only lowers scores unless it says so."""

    def begin(self, history: History) -> Processor:  # noqa: ARG002 - the protocol's
        """Return itself."""
        return self

    def apply(self, ids: Ints | None, scores: Floats, history: History) -> None:
        """Change scores."""
        raise NotImplementedError

    def raised(self, history: History) -> Ints | None:  # noqa: ARG002 - the protocol's
        """Raise none."""
        return NO_IDS

    def touched(self, history: History) -> Ints | None:
        """Change those that `apply` does."""
        raise NotImplementedError

    def advance(self, token: int, history: History) -> None:
        """Need nothing."""

    def fork(self) -> Processor:
        """Return itself: rows may share it."""
        return self

    def refusal(self, *, ends: bool) -> RequestError | None:  # noqa: ARG002 - the protocol's
        """Let all go on."""
        return None

    def close(self) -> None:
        """Have nothing to stop."""


class RowRules:
    """The processors of one row in their order, and its history."""

    def __init__(self, processors: list[Processor], history: History) -> None:
        self.history = history
        self._processors = processors

    @staticmethod
    def begin(rules: tuple[Rule, ...], history: History) -> RowRules:
        """Begin a request's rules in a row that has been given what stands in its history."""
        return RowRules([rule.begin(history) for rule in rules], history)

    def apply(self, ids: Ints | None, scores: Floats) -> None:
        """Change `scores` of the tokens `ids` in place, by one processor after the other. See Processor."""
        for processor in self._processors:
            processor.apply(ids, scores, self.history)

    def raised(self) -> Ints | None:
        """The tokens whose scores may rise, each once and ascending. None: any may."""
        return _union([processor.raised(self.history) for processor in self._processors])

    def touched(self) -> Ints | None:
        """The tokens whose scores may change, each once and ascending. None: any may.

        The decoder may read tokens that it never writes. These may be among them.
        """
        return _union([processor.touched(self.history) for processor in self._processors])

    def advance(self, token: int) -> None:
        """Take note of the row's next token."""
        self.history.append(token)
        for processor in self._processors:
            processor.advance(token, self.history)

    def fork(self) -> RowRules:
        """Return a copy for a row that goes its own way from here."""
        return RowRules([processor.fork() for processor in self._processors], self.history.fork())

    def refusal(self, *, ends: bool) -> RequestError | None:
        """Return why the row cannot go on, or None. `ends`: its last token is an end that was chosen."""
        refusals = (processor.refusal(ends=ends) for processor in self._processors)
        return next((refusal for refusal in refusals if refusal is not None), None)

    def close(self) -> None:
        """Stop what goes on beside the lane. The row is gone."""
        for processor in self._processors:
            processor.close()


def _union(parts: list[Ints | None]) -> Ints | None:
    known = [part for part in parts if part is not None]
    if len(known) < len(parts):
        return None
    some = [part for part in known if len(part)]
    return np.unique(np.concatenate(some)) if some else NO_IDS


def places(ids: Ints | None, wanted: Ints, num: int) -> tuple[Ints, Ints | slice]:
    """Return where among the `num` tokens `ids` the `wanted` ones stand, and which of them each place holds.

    `wanted` are ascending, each once. A decoder may read tokens that it never writes, so some may be none of them. No
    `ids`: all tokens in their order.
    """
    if not len(wanted):
        return NO_IDS, NO_IDS
    if ids is None:
        known = wanted if wanted[-1] < num else wanted[wanted < num]
        return known, slice(len(known))
    which = np.minimum(np.searchsorted(wanted, ids), len(wanted) - 1)
    found = np.flatnonzero(wanted[which] == ids)
    return found, which[found]
