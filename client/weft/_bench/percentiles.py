"""Percentiles of what was measured, with the standard library."""

import math
from collections.abc import Iterable
from dataclasses import dataclass
from statistics import fmean
from typing import Self


@dataclass(frozen=True, slots=True)
class Summary:
    """What to know of many numbers; NaN everywhere but in `count` when there were none."""

    count: int
    mean: float
    p50: float
    p90: float
    p95: float
    p99: float
    max: float

    @classmethod
    def of(cls, values: Iterable[float]) -> Self:
        """Sum up numbers, in any order."""
        found = sorted(values)
        if not found:
            return cls(0, math.nan, math.nan, math.nan, math.nan, math.nan, math.nan)
        p50, p90, p95, p99 = (percentile(found, share) for share in (0.5, 0.9, 0.95, 0.99))
        return cls(len(found), fmean(found), p50, p90, p95, p99, found[-1])


def percentile(found: list[float], share: float) -> float:
    """Return the number below which `share` of the sorted numbers lie, linear between neighbours."""
    place = share * (len(found) - 1)
    below = math.floor(place)
    above = min(below + 1, len(found) - 1)
    return found[below] + (place - below) * (found[above] - found[below])
