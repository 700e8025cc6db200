"""The most probable tokens of a step, as the model itself has them."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from weft_server.sampling.processed_candidates import best

if TYPE_CHECKING:
    from weft_server.sampling.candidates import Candidates


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
