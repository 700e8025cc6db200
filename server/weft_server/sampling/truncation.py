"""Cuts of a distribution that look at its entropy or at probabilities: typical-p, epsilon, eta.

transformers: TypicalLogitsWarper, EpsilonLogitsWarper, EtaLogitsWarper. What each leaves lies side by side in the order
of probability.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

if TYPE_CHECKING:
    from weft_server.logits_processors.arrays import Doubles


class Truncation(NamedTuple):
    """What a row asks for. 1, 0 and 0 cut nothing."""

    typical_p: float
    epsilon: float
    eta: float

    @property
    def cuts_nothing(self) -> bool:
        """Whether it leaves all tokens."""
        return self.typical_p == 1 and not self.epsilon and not self.eta

    def keep(self, weights: Doubles) -> tuple[int, int]:
        """Return the first token that is left, and one past the last. `weights` [m] fall, and need not sum to 1."""
        start, stop = 0, int(np.count_nonzero(weights))
        if self.typical_p < 1:
            start, stop = _typical(_shares(weights[:stop]), self.typical_p)
        if self.epsilon:
            stop = start + _above(_shares(weights[start:stop]), self.epsilon)
        if self.eta:
            shares = _shares(weights[start:stop])
            floor = min(self.eta, math.sqrt(self.eta) * math.exp(-_entropy(shares)))
            stop = start + _above(shares, floor)
        return start, stop


def draw(weights: Doubles, cuts: Truncation, uniform: float) -> int:
    """Return the number of the drawn token, counted from 0 by `weights` [m], which fall."""
    start, stop = cuts.keep(weights)
    reached = np.cumsum(weights[start:stop])
    return start + min(int(np.searchsorted(reached, uniform * reached[-1], side="right")), stop - start - 1)


def _shares(weights: Doubles) -> Doubles:
    shares: Doubles = weights / weights.sum()
    return shares


def _entropy(shares: Doubles) -> float:
    return -float((shares * np.log(shares)).sum())


def _above(shares: Doubles, floor: float) -> int:
    """How many shares reach a floor. Those that equal the greatest always do."""
    return int(np.count_nonzero(shares >= min(floor, shares[0])))


def _typical(shares: Doubles, mass: float) -> tuple[int, int]:
    """Keep those whose information is nearest to the entropy, until they have `mass` together."""
    distance = np.abs(np.log(shares) + _entropy(shares))
    # Distances fall and then rise. A stable sort finds these two runs, and merges them.
    nearest = np.argsort(distance, kind="stable")
    last = min(int((np.cumsum(shares[nearest]) < mass).sum()), len(shares) - 1)
    kept = np.flatnonzero(distance <= distance[nearest[last]])
    return int(kept[0]), int(kept[-1]) + 1
