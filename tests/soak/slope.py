"""How fast a series grows, and how sure that is.

Samples of memory are not independent: a load, a swap or the allocator moves many of them together. So the series is cut
into NUM_BLOCKS blocks of equal length. Their means are nearly independent where a block is much longer than such a
movement. A line is fitted to the means by least squares. Its 95 % interval is Student's, with NUM_BLOCKS - 2 degrees of
freedom. Where neighbouring residuals still go together, the interval is made wider, as for an AR(1) series.
"""

from typing import NamedTuple

import numpy as np

NUM_BLOCKS = 12
# The 0.975 quantile of Student's t with 10 degrees of freedom.
T_975 = 2.228


class Slope(NamedTuple):
    """Growth per hour, and its 95 % interval."""

    per_hour: float
    low: float
    high: float


def slope_of(times_s, values, since_s=0.0):
    """The slope of values at times in seconds. What is before `since_s` is left out."""
    times_s, values = np.asarray(times_s, float), np.asarray(values, float)
    times_s, values = times_s[times_s >= since_s] / 3600, values[times_s >= since_s]
    if len(times_s) < 2 * NUM_BLOCKS:
        raise ValueError(f"{len(times_s)} samples are too few: a slope needs {2 * NUM_BLOCKS}")
    x, y = (np.array([block.mean() for block in np.array_split(each, NUM_BLOCKS)]) for each in (times_s, values))
    spread = x - x.mean()
    slope = spread @ y / (spread @ spread)
    residuals = y - y.mean() - slope * spread
    error = np.sqrt(residuals @ residuals / (NUM_BLOCKS - 2) / (spread @ spread) * _inflation(residuals))
    return Slope(float(slope), float(slope - T_975 * error), float(slope + T_975 * error))


def _inflation(residuals):
    """By how much neighbours that go together make the variance of a slope larger; never smaller than 1."""
    power = residuals @ residuals
    # A line that was fitted takes some of what neighbours share: in white noise this is about -2 / n.
    together = (residuals[1:] @ residuals[:-1] / power if power else 0.0) + 2 / len(residuals)
    together = min(max(together, 0.0), 0.8)
    return (1 + together) / (1 - together)
