"""Puts tokens that must come in the place of those that were chosen, whatever the model says there.

transformers does so in ForcedBOSTokenLogitsProcessor and ForcedEOSTokenLogitsProcessor: they forbid all other tokens,
and report a log-probability of 0. Here it is the model's own, as of any other token.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from weft_server.logits_processors.arrays import Bools, Ints
    from weft_server.sampling.candidates import Candidates


def force(candidates: Candidates, ids: Ints, log_probs: NDArray[np.float32], forced: Ints, *, scored: Bools) -> Bools:
    """Change ids [n] and log_probs [n] where a token is `forced` [n], -1 for none. Returns where another was chosen.

    The log-probability of a row that is not `scored` is NaN: reading it from a device takes long.
    """
    replaced: Bools = (forced >= 0) & (ids != forced)
    for row in np.flatnonzero(replaced).tolist():
        ids[row] = forced[row]
        log_probs[row] = candidates.log_prob(row, forced[row]) if scored[row] else np.nan
    return replaced
