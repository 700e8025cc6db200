"""Tokens and phrases of tokens that a request names: kept out, alone allowed, or given a bias.

Some are kept out always, others where a phrase would end, or while an answer is short.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from weft_server.logits_processors.base import BARRED, Bans, Stateless, once, places
from weft_server.logits_processors.history import NO_IDS

if TYPE_CHECKING:
    from collections.abc import Iterable
    from collections.abc import Sequence as Many

    from weft_server.logits_processors.arrays import Floats, Ints
    from weft_server.logits_processors.history import History


class PhraseEndings:
    """Finds the phrases whose tokens but the last have just come.

    It costs a look-up for the last token, and one for each length of the phrases that go on behind that token.
    """

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
        # By the last token of what stands before the end: its lengths, in the order in which they came.
        self._lengths: dict[int, dict[int, None]] = {}
        for length, phrases_of in by_length.items():
            for before_end in phrases_of:
                self._lengths.setdefault(before_end[-1], {})[length] = None
        self.by_length = by_length
        self._longest = max(by_length, default=0)

    def now(self, read: Ints) -> list[int]:
        """Return the numbers of the longer phrases that one more token would end, by length. `singles` always do."""
        if not len(read) or (lengths := self._lengths.get(int(read[-1]))) is None:
            return []
        tail = tuple(read[-self._longest :].tolist())
        found: list[int] = []
        for length in lengths:
            if length <= len(tail):
                found += self.by_length[length].get(tail[-length:], ())
        return found


class Suppressed(Bans):
    """Tokens that must not come while the answer has fewer than `until` tokens. None: never.

    transformers has SuppressTokensLogitsProcessor, SuppressTokensAtBeginLogitsProcessor, and for end tokens
    MinNewTokensLengthLogitsProcessor.
    """

    def __init__(self, tokens: Iterable[int], until: int | None = None) -> None:
        """Begin with tokens in any order."""
        self._tokens = np.unique(np.fromiter(tokens, np.int64))
        self._until = until

    def now(self, history: History) -> Ints:
        """All of them, or none."""
        return self._tokens if self._until is None or history.num_new < self._until else NO_IDS


class Banned(Bans):
    """Phrases that must not come: transformers' NoBadWordsLogitsProcessor, which lets an end token alone pass."""

    def __init__(self, phrases: Iterable[Many[int]]) -> None:
        """Begin with phrases of one token or more."""
        self._endings = PhraseEndings(phrases)
        # What must never come.
        self._alone = np.unique(self._endings.tokens[self._endings.singles])

    def now(self, history: History) -> Ints:
        """The tokens with which a phrase would end."""
        found = self._endings.now(history.read)
        return once([self._alone, self._endings.tokens[found]]) if found else self._alone


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


class SequenceBias:
    """Adds to the scores of tokens, or of a phrase's last token: transformers' SequenceBiasLogitsProcessor.

    What is added for several phrases that end with the same token is summed first, in float32.
    """

    def __init__(self, biases: Iterable[tuple[Many[int], float]]) -> None:
        """Begin with phrases of one token or more, and what is added for each."""
        biases = list(biases)
        self._endings = PhraseEndings(phrase for phrase, _ in biases)
        self._added = np.array([added for _, added in biases], np.float32)
        # What single tokens get: tokens, ascending and each once, and what is added to each.
        self._alone = self._sum(NO_IDS, np.empty(0, np.float32), self._endings.singles)

    def begin(self, history: History) -> _Biased:
        """Begin behind what the row was given."""
        return _Biased(self, *self.now(history))

    def now(self, history: History) -> tuple[Ints, Floats]:
        """Return tokens, ascending and each once, and what is added to each."""
        found = self._endings.now(history.read)
        return self._sum(*self._alone, np.array(found, np.int64)) if found else self._alone

    def _sum(self, before: Ints, added_before: Floats, numbers: Ints) -> tuple[Ints, Floats]:
        """Add what the phrases of these numbers get to what there is, one after the other."""
        ends = self._endings.tokens[numbers]
        tokens = once([before, ends])
        added = np.zeros(len(tokens), np.float32)
        added[np.searchsorted(tokens, before)] = added_before
        np.add.at(added, np.searchsorted(tokens, ends), self._added[numbers])
        return tokens, added


class _Biased(Stateless):
    """What is added now, in one row. It is looked up once for each token."""

    def __init__(self, rule: SequenceBias, tokens: Ints, added: Floats) -> None:
        self._rule, self._tokens, self._added = rule, tokens, added

    def apply(self, ids: Ints | None, scores: Floats, history: History) -> None:  # noqa: ARG002 - the protocol's
        """Add."""
        where, which = places(ids, self._tokens, len(scores))
        scores[where] += self._added[which]

    def raised(self, history: History) -> Ints:  # noqa: ARG002 - the protocol's
        """The tokens to which more than 0 is added."""
        return self._tokens[self._added > 0]

    def touched(self, history: History) -> Ints:  # noqa: ARG002 - the protocol's
        """The tokens to which something is added."""
        return self._tokens

    def advance(self, token: int, history: History) -> None:  # noqa: ARG002 - the protocol's
        """Look up which phrases would end now."""
        self._tokens, self._added = self._rule.now(history)

    def fork(self) -> _Biased:
        """Return a copy that looks by itself."""
        return _Biased(self._rule, self._tokens, self._added)
