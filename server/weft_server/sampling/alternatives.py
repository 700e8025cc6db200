"""Picks the most probable tokens of a row, which is where alternative answers begin."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from weft_server.sampling.processed_candidates import best

if TYPE_CHECKING:
    from weft_server.logits_processors.arrays import Ints
    from weft_server.sampling.candidates import Candidates, Count


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
