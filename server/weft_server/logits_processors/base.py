"""What a request's rules ask of each token, and the state that they have in one row.

A rule belongs to a request, and all its rows share it. It begins a processor in each row. Processors change scores one
token at a time: what a token gets depends on its own score and on the row's history, never on other tokens' scores. So
they can be asked about a few candidates as well as about the whole vocabulary.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

import numpy as np

from weft_server.logits_processors.history import NO_IDS

if TYPE_CHECKING:
    from weft_server.errors import RequestError
    from weft_server.logits_processors.arrays import Floats, Ints
    from weft_server.logits_processors.history import History


BARRED = np.float32(-np.inf)


class LogitsProcessor(Protocol):
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

    def fork(self) -> LogitsProcessor:
        """Return a copy for a row that goes its own way from here."""

    def refusal(self, *, ends: bool) -> RequestError | None:
        """Return why the row cannot go on, or None. `ends`: its last token is an end that was chosen."""

    def close(self) -> None:
        """Stop what goes on beside the lane. Nothing else is asked any more."""


class Rule(Protocol):
    """What a request asks for, in all its rows."""

    def begin(self, history: History) -> LogitsProcessor:
        """Return what does it in one row, which has been given what stands in its history."""


class Stateless:
    """A rule that is its own processor: it needs nothing but the history. It only lowers scores unless it says so."""

    def begin(self, history: History) -> LogitsProcessor:  # noqa: ARG002 - the protocol's
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

    def fork(self) -> LogitsProcessor:
        """Return itself: rows may share it."""
        return self

    def refusal(self, *, ends: bool) -> RequestError | None:  # noqa: ARG002 - the protocol's
        """Let all go on."""
        return None

    def close(self) -> None:
        """Have nothing to stop."""


class Bans:
    """A rule that says no more than which tokens must not come now. Who derives from it says which."""

    def begin(self, history: History) -> LogitsProcessor:
        """Return what bars them in one row."""
        return _Barred([self], [], NO_IDS).looked(history)

    def now(self, history: History) -> Ints:
        """Return the tokens that must not come next, ascending, each once."""
        raise NotImplementedError


class _Barred(Stateless):
    """All bans of one row together. A score of -inf stays so, so it does not matter which rule gives it, and when."""

    def __init__(self, bans: list[Bans], parts: list[Ints], tokens: Ints) -> None:
        self._bans = bans
        # What each of them bars now, and all of these, ascending and each once.
        self._parts, self._tokens = parts, tokens

    def apply(self, ids: Ints | None, scores: Floats, history: History) -> None:  # noqa: ARG002 - the protocol's
        """Give them a score of -inf."""
        where, _ = places(ids, self._tokens, len(scores))
        scores[where] = BARRED

    def touched(self, history: History) -> Ints:  # noqa: ARG002 - the protocol's
        """The tokens that must not come next."""
        return self._tokens

    def advance(self, token: int, history: History) -> None:  # noqa: ARG002 - the protocol's
        """Look what is barred now."""
        self.looked(history)

    def looked(self, history: History) -> _Barred:
        """Look what is barred now. Most rules say the same as before, so most steps join nothing anew."""
        parts = [each.now(history) for each in self._bans]
        if len(parts) != len(self._parts) or not all(map(_same, parts, self._parts)):
            self._parts, self._tokens = parts, once(parts)
        return self

    def fork(self) -> _Barred:
        """Return a copy that looks by itself."""
        return _Barred(self._bans, self._parts, self._tokens)


class RowRules:
    """The processors of one row in their order, and its history."""

    def __init__(self, processors: list[LogitsProcessor], history: History) -> None:
        self.history = history
        self._processors = processors

    @staticmethod
    def begin(rules: tuple[Rule, ...], history: History) -> RowRules:
        """Begin a request's rules in a row that has been given what stands in its history.

        All bans are one processor.
        """
        bans = [rule for rule in rules if isinstance(rule, Bans)]
        barred = [_Barred(bans, [], NO_IDS).looked(history)] if bans else []
        return RowRules([*barred, *(rule.begin(history) for rule in rules if not isinstance(rule, Bans))], history)

    def apply(self, ids: Ints | None, scores: Floats) -> None:
        """Change `scores` of the tokens `ids` in place, by one processor after the other. See Processor."""
        for processor in self._processors:
            processor.apply(ids, scores, self.history)

    def raised(self, most: int) -> Ints | None:
        """The tokens whose scores may rise, each once and ascending. None: any may, or more than `most`."""
        return _union([processor.raised(self.history) for processor in self._processors], most)

    def touched(self, most: int) -> Ints | None:
        """The tokens whose scores may change, each once and ascending. None: any may, or more than `most`.

        The decoder may read tokens that it never writes. These may be among them.
        """
        return _union([processor.touched(self.history) for processor in self._processors], most)

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


def _union(parts: list[Ints | None], most: int) -> Ints | None:
    known = [part for part in parts if part is not None]
    # A part alone may be too many. Then none of them is looked at.
    if len(known) < len(parts) or any(len(part) > most for part in known):
        return None
    tokens = once(known)
    return tokens if len(tokens) <= most else None


def _same(these: Ints, those: Ints) -> bool:
    # Most rules return the very array that they did before.
    return these is those or (len(these) == len(those) and bool((these == those).all()))


def once(parts: list[Ints]) -> Ints:
    """Return all tokens of some arrays, ascending, each once. np.unique takes several times as long."""
    some = [part for part in parts if len(part)]
    if not some:
        return NO_IDS
    tokens: Ints = np.sort(np.concatenate(some))
    is_first = np.ones(len(tokens), np.bool_)
    np.not_equal(tokens[1:], tokens[:-1], out=is_first[1:])
    each: Ints = tokens[is_first]
    return each


def inserted(array: Ints, place: int, value: int) -> Ints:
    """Return a copy with one number more. np.insert takes several times as long."""
    return np.concatenate([array[:place], [value], array[place:]])


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
