"""Picks the n-th most probable token, which is where an alternative answer begins."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from weft_server.choosing.processed import best

if TYPE_CHECKING:
    from weft_server.choosing.arrays import Ints
    from weft_server.choosing.candidates import Candidates


def nth_best(candidates: Candidates, row: int, rank: int, barred_ids: Ints) -> int | None:
    """Return the token of a row that `rank` others are better than, 0 for the best. None: fewer may come.

    `barred_ids` must not come. Of equal logits the lower id is better. All logits are read where the candidates are too
    few.
    """
    ids = candidates.topk_ids[row]
    allowed = ~np.isin(ids, barred_ids) & (candidates.topk_logits[row] > -np.inf)
    if candidates.ranked is not None:
        allowed &= candidates.ranked[row]
    if rank < np.count_nonzero(allowed):
        return int(ids[allowed][rank])
    every = candidates.logits[row].copy()
    every[barred_ids] = -np.inf
    found = best(every, rank + 1).ids
    return int(found[rank]) if rank < len(found) else None
