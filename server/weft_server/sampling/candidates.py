"""What a decoder's run says of each row's next token: the candidates that a sampler chooses from."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Protocol

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray

    # Who counts the rows that are read whole, by why.
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
