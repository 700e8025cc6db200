"""Puts an end token in the place of the last token that a request allows, whatever the model has chosen there.

transformers does so in ForcedEOSTokenLogitsProcessor: it forbids all other tokens, and reports a log-probability of 0.
Here it is the model's own, as of any other token.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from weft_server.choosing.candidates import Candidates

    Bools = NDArray[np.bool_]


def force_end(
    candidates: Candidates,
    ids: NDArray[np.int64],
    log_probs: NDArray[np.float32],
    *,
    end_id: int,
    last: Bools,
    scored: Bools,
) -> Bools:
    """Change ids [n] and log_probs [n] in the rows that are at their `last` token. Returns where another was chosen.

    The log-probability of a row that is not `scored` is NaN: reading it from a device takes long.
    """
    forced: Bools = last & (ids != end_id)
    for row in np.flatnonzero(forced).tolist():
        ids[row] = end_id
        log_probs[row] = candidates.logits[row][end_id] - candidates.logsumexp[row] if scored[row] else np.nan
    return forced
