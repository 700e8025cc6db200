"""What a decoder's run says about each row's next token; tokens in the place of those that were chosen."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, NamedTuple, Protocol

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray

    from weft_server.logits_processors.arrays import Bools, Floats, Ints

    # Called with why a row is read whole.
    Count = Callable[[str], None]


class LogitRows(Protocol):
    """All logits: an array [rows, vocab], or something that fetches a row of one when asked."""

    @property
    def shape(self) -> tuple[int, ...]:
        """Rows and vocab, at least."""

    def __getitem__(self, row: int, /) -> NDArray[np.float32]:
        """Return one row, [vocab]."""


@dataclass(frozen=True, slots=True)
class Candidates:
    """What a decoder run says of each row's next token, n rows: the K best, the normaliser, and everything."""

    topk_logits: NDArray[np.float32]  # [n, k], descending
    topk_ids: NDArray[np.int64]  # [n, k]
    logsumexp: NDArray[np.float32]  # [n], NaN where nobody asked for it
    logits: LogitRows  # [n, vocab], read only for rows that need it
    # Set where rules have changed rows. See `processed`.
    ranked: NDArray[np.bool_] | None = None  # [n, k], False where an entry is no token but bounds those beyond
    loose: NDArray[np.bool_] | None = None  # [n], whether logsumexp is no more than an upper bound
    # Where a run was told temperatures: what all tokens of a row weigh, exp((logit - best logit) / temperature) each.
    total_weights: NDArray[np.float32] | None = None  # [n], NaN where it is not known

    def log_prob(self, row: int, token: int) -> np.float32:
        """Return a token's log-probability under the model, at temperature 1. NaN without a normaliser."""
        total: np.float32 = self.logsumexp[row]
        if np.isnan(total):
            return total
        among = np.flatnonzero(self.topk_ids[row] == token)
        logit: np.float32 = self.topk_logits[row, among[0]] if len(among) else self.logits[row][token]
        return logit - total

    def stretched(self, num_rows: int) -> Candidates:
        """The same, with the last row repeated until there are `num_rows`: the rows of a prompt that was read once."""
        num_read = len(self.topk_ids)
        return self if num_read == num_rows else self.picked(np.minimum(np.arange(num_rows), num_read - 1))

    def picked(self, rows: NDArray[np.int64]) -> Candidates:
        """The same of some rows, in this order. A row may come several times."""
        return replace(
            self,
            topk_logits=self.topk_logits[rows],
            topk_ids=self.topk_ids[rows],
            logsumexp=self.logsumexp[rows],
            logits=_Picked(self.logits, rows.tolist()),
            total_weights=None if self.total_weights is None else self.total_weights[rows],
        )


class _Picked:
    """Some rows of logits."""

    def __init__(self, logits: LogitRows, rows: list[int]) -> None:
        self._logits = logits
        self._rows = rows
        self.shape = (len(rows), *logits.shape[1:])

    def __getitem__(self, row: int) -> NDArray[np.float32]:
        """Return one row, [vocab]."""
        return self._logits[self._rows[row]]


class Ranked(NamedTuple):
    """Tokens that a row's rules leave, the best first, the lower id first where scores are equal."""

    ids: Ints  # [m]
    scores: Floats  # [m], none of them -inf
    # No other token has a higher score.
    bound: np.float32


def best(scores: Floats, most: int) -> Ranked:
    """Return the `most` best of all tokens, or fewer if the others have -inf."""
    most = min(most, len(scores))
    # The best come first. From the other end it takes ten times as long where most tokens are barred.
    least = -np.partition(-scores, most - 1)[most - 1]
    above = np.flatnonzero(scores > least)
    ties = np.flatnonzero(scores == least)[: most - len(above)] if least > -np.inf else above[:0]
    ids = np.concatenate([above[np.argsort(-scores[above], kind="stable")], ties])
    return Ranked(ids, scores[ids], least)


class TopLogprobs(NamedTuple):
    """Tokens of one step, best first, and the natural logarithms of their probabilities at temperature 1."""

    token_ids: list[int]
    log_probs: list[float]


def top_logprobs_of(candidates: Candidates, row: int, num: int) -> TopLogprobs:
    """Return the `num` most probable tokens of a row, or fewer if the graph rules the others out."""
    ids, logits = candidates.topk_ids[row, :num], candidates.topk_logits[row, :num]
    if num > len(ids):
        ids, logits, _ = best(candidates.logits[row], num)
    allowed = logits > -np.inf
    return TopLogprobs(ids[allowed].tolist(), (logits[allowed] - candidates.logsumexp[row]).tolist())


def best_of_row(candidates: Candidates, row: int, num: int, barred_ids: Ints, count: Count) -> list[int]:
    """Return the `num` best tokens of a row, the best first, or fewer if fewer may come.

    `barred_ids` must not come. Of equal logits the lower id is better. All logits are read where the candidates are too
    few, which is counted.
    """
    ids = candidates.topk_ids[row]
    allowed = ~np.isin(ids, barred_ids) & (candidates.topk_logits[row] > -np.inf)
    if candidates.ranked is not None:
        allowed &= candidates.ranked[row]
    found = ids[allowed]
    if len(found) < num:
        count("alternatives")
        every = candidates.logits[row].copy()
        every[barred_ids] = -np.inf
        found = best(every, num).ids
    chosen: list[int] = found[:num].tolist()
    return chosen


def force(candidates: Candidates, ids: Ints, log_probs: NDArray[np.float32], forced: Ints, *, scored: Bools) -> Bools:
    """Change ids [n] and log_probs [n] where a token is `forced` [n], -1 for none. Returns where another was chosen.

    The log-probability of a row that is not `scored` is NaN: reading it from a device takes long.
    """
    replaced: Bools = (forced >= 0) & (ids != forced)
    for row in np.flatnonzero(replaced).tolist():
        ids[row] = forced[row]
        log_probs[row] = candidates.log_prob(row, forced[row]) if scored[row] else np.nan
    return replaced
