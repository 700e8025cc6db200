"""What the slope of a series says, and how often it is wrong."""

import numpy as np
import pytest
from gate import ALLOWED_MB, memory
from slope import slope_of

# Half an hour, a sample each second. Noise as that of a server of 300 MB that is swapped every 15 s.
TIMES = np.arange(1800.0)
HOURS = 0.5
NOISE_MB = 4.0
# A sample's share of the one before: half of a movement is left after 23 s.
CARRIED = 0.97


def moving(generator, size):
    """AR(1) noise, whose neighbours go together, with a standard deviation of NOISE_MB."""
    values = generator.normal(0.0, NOISE_MB, size)
    steps = values * np.sqrt(1 - CARRIED**2)
    for at in range(1, size):
        values[at] = CARRIED * values[at - 1] + steps[at]
    return values


def test_a_flat_series_is_bounded():
    """Noise around a constant has a slope below the bound, proven."""
    slope = slope_of(TIMES, 300 + np.random.default_rng(1).normal(0.0, NOISE_MB, TIMES.size))

    assert "bounded" == memory(slope, HOURS)
    assert slope.low < 0 < slope.high


def test_a_leak_is_caught():
    """A leak of three times the bound is found in noise that moves, and its interval has its slope."""
    leak = 3 * ALLOWED_MB / HOURS
    slope = slope_of(TIMES, 300 + leak * TIMES / 3600 + moving(np.random.default_rng(1), TIMES.size))

    assert "leaks" == memory(slope, HOURS)
    assert slope.low < leak < slope.high


def test_a_warm_up_is_left_out():
    """A step before `since_s` changes nothing."""
    sizes = 300 + np.random.default_rng(1).normal(0.0, NOISE_MB, TIMES.size)
    stepped = sizes - 100.0 * (TIMES < 300)

    assert slope_of(TIMES, sizes, since_s=300) == slope_of(TIMES, stepped, since_s=300)
    assert slope_of(TIMES, stepped).per_hour * HOURS > ALLOWED_MB


def test_a_short_soak_proves_little():
    """A minute of noise that moves is never a leak; nor is a growth that half an hour would show to be one."""
    generator = np.random.default_rng(1)
    minute, growth = TIMES[:60], 10 * ALLOWED_MB * TIMES[:60] / 3600
    words = [memory(slope_of(minute, growth + moving(generator, 60)), 1 / 60) for _ in range(200)]

    assert {"bounded", "not proven"} == set(words)


def test_a_movement_is_no_leak():
    """Of 400 series without a slope, and with noise that moves, at most 4 % have an interval above zero.

    It would be 2.5 % of independent samples. A plain line through all samples says so of more than a third. Above the
    bound, where the gate fails, there is none.
    """
    generator = np.random.default_rng(1)
    slopes = [slope_of(TIMES, moving(generator, TIMES.size)) for _ in range(400)]

    assert sum(slope.low > 0 for slope in slopes) <= 0.04 * len(slopes)
    assert 0 == sum(memory(slope, HOURS) == "leaks" for slope in slopes)


def test_an_interval_has_its_slope():
    """Of 400 series that grow in noise that moves, at least 92 % have intervals with the true slope."""
    generator = np.random.default_rng(2)
    slopes = [slope_of(TIMES, 30 * TIMES / 3600 + moving(generator, TIMES.size)) for _ in range(400)]

    assert sum(slope.low < 30 < slope.high for slope in slopes) >= 0.92 * len(slopes)


def test_too_few_samples_are_refused():
    """A block needs two samples."""
    with pytest.raises(ValueError, match="23 samples are too few"):
        slope_of(TIMES[:23], TIMES[:23])
