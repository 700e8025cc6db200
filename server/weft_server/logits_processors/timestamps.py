"""Holds an answer to the grammar of moments: when something begins, what is said, when it ends.

"Robust Speech Recognition via Large-Scale Weak Supervision", Radford et al. 2022, and the authors' ApplyTimestampRules.
transformers has WhisperTimeStampLogitsProcessor.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from weft_server.logits_processors.base import BARRED, Stateless

if TYPE_CHECKING:
    from collections.abc import Iterable

    from weft_server.logits_processors.arrays import Floats, Ints
    from weft_server.logits_processors.history import History


class Timestamps(Stateless):
    """Tokens that say moments come in pairs around what is said, and time does not go back.

    An answer begins with one. If all moments together are more probable than each other token, one of them comes. That
    is the only rule that looks at other tokens' scores. So it lets any of them rise, and is shown all.
    """

    def __init__(
        self, first: int, num: int, latest: int | None, no_moments: int | None, end_ids: Iterable[int]
    ) -> None:
        """Begin with the moments [first, first + num), of which an answer begins with one up to `latest`.

        `no_moments` is what an answer without moments begins with. It must not come.
        """
        self._first, self._stop = first, first + num
        self._latest = num - 1 if latest is None else min(latest, num - 1)
        self._no_moments = no_moments
        self._end_ids = np.unique(np.fromiter(end_ids, np.int64))

    def apply(self, ids: Ints | None, scores: Floats, history: History) -> None:
        """Forbid what must not come now."""
        assert ids is None, "moments are chosen among all tokens. This is a bug."
        if self._no_moments is not None:
            scores[self._no_moments] = BARRED
        said = history.produced
        if not len(said):
            self._bar_others(scores)
            scores[self._first + self._latest + 1 : self._stop] = BARRED
            return
        is_moment = (said >= self._first) & (said < self._stop)
        # An answer's first moment opens, whatever stands before it.
        opens = bool(is_moment[-1] and (len(said) < 2 or is_moment[-2]))
        closes = bool(is_moment[-1] and not opens)
        if opens:
            scores[self._first : self._stop] = BARRED
            return
        if closes:
            ends = scores[self._end_ids]
            self._bar_others(scores)
            scores[self._end_ids] = ends
        self._bar_past(scores, said[is_moment], closes=closes)
        moments = scores[self._first : self._stop]
        if _sum(moments) > max(scores[: self._first].max(initial=BARRED), scores[self._stop :].max(initial=BARRED)):
            self._bar_others(scores)

    def raised(self, history: History) -> Ints | None:  # noqa: ARG002 - the protocol's
        """Any: none does, but all are looked at."""
        return None

    def touched(self, history: History) -> Ints | None:  # noqa: ARG002 - the protocol's
        """Any."""
        return None

    def _bar_others(self, scores: Floats) -> None:
        scores[: self._first] = BARRED
        scores[self._stop :] = BARRED

    def _bar_past(self, scores: Floats, told: Ints, *, closes: bool) -> None:
        """What has closed may open at the same moment. Otherwise time goes on, or an answer would have no end."""
        if len(told):
            scores[self._first : told[-1] + (not closes)] = BARRED


def _sum(scores: Floats) -> float:
    """Return the logarithm of the sum of exponentials."""
    most = scores.max()
    return float(most if most == BARRED else most + np.log(np.exp(scores - most).sum()))
