"""Adds to the scores of tokens, or of a phrase's last token: transformers' SequenceBiasLogitsProcessor."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from weft_server.logits_processors.base import Stateless, once, places
from weft_server.logits_processors.history import NO_IDS
from weft_server.logits_processors.phrase_endings import PhraseEndings

if TYPE_CHECKING:
    from collections.abc import Iterable
    from collections.abc import Sequence as Many

    from weft_server.logits_processors.arrays import Floats, Ints
    from weft_server.logits_processors.history import History


class SequenceBias:
    """What is added for several phrases that end with the same token is summed first, in float32."""

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
