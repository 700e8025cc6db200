"""The tokens of one row by their weight, sorted only where somebody looks.

A draw asks for two places in the order of all tokens: where the tokens that may come end, and where the drawn one
stands. So all tokens are put into buckets by their weight, and only the buckets of these two places are sorted.
"""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

if TYPE_CHECKING:
    from weft_server.logits_processors.arrays import Doubles, Floats, Ints


_NUM_BUCKETS = 1024
# In units of the temperature. What lies further below the best logit weighs nothing, and shares the last bucket.
_DEPTH = 40.0


class OrderPlace(NamedTuple):
    """A token's place in the order: its bucket, and its number there. Places compare as the order goes."""

    bucket: int
    number: int


class Order:
    """All tokens of a row: the best first, the lower id first where logits are equal."""

    def __init__(self, logits: Floats, temperature: float) -> None:
        """Take logits [vocab]. -inf is a token that must not come. One at least is finite."""
        gaps = logits.astype(np.float64)
        gaps -= gaps.max()
        if temperature != 1:
            gaps /= temperature
        # What a token weighs: 1 for the best.
        self.weights: Doubles = np.exp(gaps)
        self._logits = logits
        lowest = max(-float(gaps.min()), 1e-9)
        gaps *= -(_NUM_BUCKETS - 1) / min(lowest, _DEPTH)
        if lowest > _DEPTH:
            np.minimum(gaps, _NUM_BUCKETS - 1, out=gaps)
        self._buckets: Ints = gaps.astype(np.int64)
        masses = np.bincount(self._buckets, weights=self.weights, minlength=_NUM_BUCKETS)
        # What all tokens weigh up to the end of a bucket.
        self._reached: Doubles = np.cumsum(masses)
        self._sorted: dict[int, tuple[Ints, Doubles]] = {}

    @property
    def total(self) -> float:
        """What all tokens weigh."""
        return float(self._reached[-1])

    def number(self, count: int) -> OrderPlace:
        """The place of the token that is the `count`-th, counted from 1."""
        bucket = int(np.searchsorted(self._counts, count))
        return OrderPlace(bucket, count - 1 - self._before(bucket))

    def reaching(self, mass: float) -> OrderPlace:
        """The place of the first token up to which all together weigh `mass` or more."""
        bucket = min(int(np.searchsorted(self._reached, mass)), int(np.searchsorted(self._reached, self._reached[-1])))
        _, reached = self._inside(bucket)
        return OrderPlace(bucket, min(int(np.searchsorted(reached, mass)), len(reached) - 1))

    def beyond(self, mass: float, end: OrderPlace | None) -> int:
        """The first token up to which all together weigh more than `mass`. None behind `end` is meant."""
        bucket = int(np.searchsorted(self._reached, mass, side="right"))
        last = OrderPlace(_NUM_BUCKETS, 0) if end is None else end
        bucket = min(bucket, last.bucket, _NUM_BUCKETS - 1)
        ids, reached = self._inside(bucket)
        number = min(int(np.searchsorted(reached, mass, side="right")), len(ids) - 1)
        return int(ids[min(number, last.number) if bucket == last.bucket else number])

    def mass(self, end: OrderPlace) -> float:
        """What the tokens up to a place weigh, that one included."""
        return float(self._inside(end.bucket)[1][end.number])

    def count(self, end: OrderPlace) -> int:
        """How many tokens there are up to a place, that one included."""
        return self._before(end.bucket) + end.number + 1

    def token(self, place: OrderPlace) -> int:
        """The token at a place."""
        return int(self._inside(place.bucket)[0][place.number])

    @cached_property
    def _counts(self) -> Ints:
        """How many tokens there are up to the end of each bucket."""
        return np.cumsum(np.bincount(self._buckets, minlength=_NUM_BUCKETS))

    def _before(self, bucket: int) -> int:
        return int(self._counts[bucket - 1]) if bucket else 0

    def _inside(self, bucket: int) -> tuple[Ints, Doubles]:
        """Return the tokens of a bucket in their order, and what all weigh up to each, those before it included."""
        if bucket not in self._sorted:
            ids = np.flatnonzero(self._buckets == bucket)
            ids = ids[np.argsort(-self._logits[ids], kind="stable")]
            before = self._reached[bucket - 1] if bucket else 0.0
            self._sorted[bucket] = ids, before + np.cumsum(self.weights[ids])
        return self._sorted[bucket]
