"""Counters and histograms cheap enough for a decode step: one value may stand for all rows of a batch."""

import threading
from bisect import bisect_left
from collections.abc import Sequence
from itertools import accumulate


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


class Histogram:
    """How often values fell into each bucket. A bucket holds values up to and including its bound."""

    __slots__ = ("_bounds", "_counts", "_kept", "_lock", "_sum")

    def __init__(self, bounds: Sequence[float]) -> None:
        self._lock = threading.Lock()
        self._bounds = tuple(map(float, bounds))
        self._counts = [0] * (len(bounds) + 1)
        self._sum = 0.0
        self.keep()

    def observe(self, value: float, count: int = 1) -> None:
        """Add `count` observations of the same `value`."""
        index = bisect_left(self._bounds, value)
        with self._lock:
            self._counts[index] += count
            self._sum += value * count

    def keep(self) -> None:
        """Let `reset` go back to now."""
        with self._lock:
            self._kept = (list(self._counts), self._sum)

    def reset(self) -> None:
        """Begin anew, from what was kept."""
        with self._lock:
            counts, self._sum = self._kept
            self._counts = list(counts)

    def snapshot(self) -> tuple[list[tuple[str, float]], float]:
        """Return (upper bound, observations up to it) for each bucket, +Inf last, and the sum of all values."""
        with self._lock:
            counts, total = list(self._counts), self._sum
        bounds = [*map(str, self._bounds), "+Inf"]
        return list(zip(bounds, accumulate(counts), strict=True)), total
