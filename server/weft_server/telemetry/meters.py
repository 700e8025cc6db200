"""Counters and histograms cheap enough for a decode step: one value may stand for all rows of a batch."""

import threading
from bisect import bisect_left
from collections.abc import Sequence
from itertools import accumulate

from prometheus_client.samples import Exemplar

# Its upper bound, the observations up to it, and a request of it that was traced, if one was.
Bucket = tuple[str, float] | tuple[str, float, Exemplar]


class Counter:
    """A number that grows. Several lanes add to it, and `+=` alone would lose some of it. So there is a lock."""

    __slots__ = ("_kept", "_lock", "value")

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self.value = self._kept = 0.0

    def inc(self, amount: float = 1) -> None:
        """Add `amount`, 0 or more."""
        with self._lock:
            self.value += amount

    def keep(self) -> None:
        """Let `reset` go back to now."""
        with self._lock:
            self._kept = self.value

    def reset(self) -> None:
        """Begin anew, from what was kept."""
        with self._lock:
            self.value = self._kept


class Level:
    """A number that grows and shrinks. Several lanes add to it."""

    __slots__ = ("_lock", "value")

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self.value = 0.0

    def add(self, amount: float) -> None:
        """Add `amount`, of any sign."""
        with self._lock:
            self.value += amount


class Histogram:
    """How often values fell into each bucket. A bucket holds values up to and including its bound."""

    __slots__ = ("_bounds", "_counts", "_exemplars", "_kept", "_lock", "_names", "_sum")

    def __init__(self, bounds: Sequence[float]) -> None:
        self._lock = threading.Lock()
        self._bounds = tuple(map(float, bounds))
        self._names = [*map(str, self._bounds), "+Inf"]
        self._counts = [0] * (len(bounds) + 1)
        self._sum = 0.0
        # By bucket, the last one.
        self._exemplars: dict[int, Exemplar] = {}
        self.keep()

    def observe(self, value: float, count: int = 1) -> None:
        """Add `count` observations of the same `value`."""
        index = bisect_left(self._bounds, value)
        with self._lock:
            self._counts[index] += count
            self._sum += value * count

    def exemplify(self, exemplar: Exemplar) -> None:
        """Show the trace of a request whose value was observed."""
        with self._lock:
            self._exemplars[bisect_left(self._bounds, exemplar.value)] = exemplar

    def keep(self) -> None:
        """Let `reset` go back to now."""
        with self._lock:
            self._kept = (list(self._counts), self._sum)

    def reset(self) -> None:
        """Begin anew, from what was kept."""
        with self._lock:
            counts, self._sum = self._kept
            self._counts = list(counts)

    @property
    def is_observed(self) -> bool:
        """Whether there was a value."""
        return any(self._counts)

    def snapshot(self) -> tuple[list[Bucket], float]:
        """Return each bucket, +Inf last, and the sum of all values."""
        with self._lock:
            counts, total, exemplars = list(self._counts), self._sum, dict(self._exemplars)
        buckets: list[Bucket] = list(zip(self._names, accumulate(counts), strict=True))
        for index, exemplar in exemplars.items():
            buckets[index] = (*buckets[index][:2], exemplar)
        return buckets, total
