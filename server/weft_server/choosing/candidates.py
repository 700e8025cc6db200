"""What a decoder's run says of each row's next token: the candidates that a sampler chooses from."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray


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
