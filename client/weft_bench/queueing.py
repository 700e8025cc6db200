"""What callers of one server wait, by how fast it is with so many requests in it. Pure arithmetic.

Requests come at random (Poisson) and are answered at a rate that depends on how many are in the server: X(n), which was
measured with n in it. That is a birth-death process, the "flow-equivalent server" of Chandy, Herzog and
Woo (1975). Beyond as many requests as there are slots they wait, in order, and the rate stays X(slots).

- p(n), the share of time with n requests in the server, is p(n-1) * rate / X(n).
- The mean time of an answer is the mean number in the server divided by the rate (Little, 1961).
- Who comes sees n with the share p(n). With a free slot, the first token takes what first tokens
  took beside n others: one of their quantiles, each as likely.
- With none free, the wait for one is longer than t with the share exp(-(X(slots) - rate) * t).
"""

import math
from bisect import bisect_right
from dataclasses import dataclass
from functools import cached_property, lru_cache
from statistics import fmean


@dataclass(frozen=True, slots=True)
class Level:
    """What was seen with so many requests in the server: answers a second, and how long the first message and all took.

    `in_flight` is a mean (Little: answers a second times the mean time of one).
    firsts_s, wholes_s: quantiles of these times, in seconds, the smallest first. Each is as likely as the others.
    There are no firsts where an answer is one message. All levels have as many.
    """

    in_flight: float
    per_s: float
    firsts_s: tuple[float, ...]
    wholes_s: tuple[float, ...]


@dataclass(frozen=True)
class Prediction:
    """One server at a rate."""

    levels: tuple[Level, ...]
    rate: float

    @property
    def slots(self) -> int:
        """As many requests were in the server at most when it was measured."""
        return len(levels_of(self.levels))

    @property
    def is_stable(self) -> bool:
        """Whether it answers as many as come."""
        return self.rate < self.levels[-1].per_s

    @property
    def busy(self) -> float:
        """The rate as a share of the highest one that was measured."""
        return self.rate / max(level.per_s for level in self.levels)

    @cached_property
    def shares(self) -> tuple[float, ...]:
        """p(0) to p(slots), and last the share of time with more in it."""
        weights = [1.0]
        for level in levels_of(self.levels):
            weights.append(weights[-1] * self.rate / level.per_s)
        ratio = self.rate / self.levels[-1].per_s
        weights.append(weights[-1] * ratio / (1 - ratio))
        total = sum(weights)
        return tuple(weight / total for weight in weights)

    @property
    def mean_s(self) -> float:
        """The mean time of an answer, its wait included."""
        ratio = self.rate / self.levels[-1].per_s
        inside = sum(number * share for number, share in enumerate(self.shares[:-1]))
        beyond = self.shares[-1] * (self.slots + 1 / (1 - ratio))
        return (inside + beyond) / self.rate

    def within(self, seconds: float, *, first: bool) -> float:
        """Return the share of requests whose first message, or else whole answer, takes at most so many seconds."""
        times = [(level.firsts_s if first else ()) or level.wholes_s for level in levels_of(self.levels)]
        in_time = [bisect_right(those, seconds) / len(those) for those in times]
        found = sum(share * part for share, part in zip(self.shares, in_time, strict=False))
        # Who finds no free slot waits for one before.
        waiting = self.shares[self.slots] + self.shares[-1]
        left = [max(0.0, seconds - each) for each in times[-1]]
        spare = self.levels[-1].per_s - self.rate
        return found + waiting * fmean(1 - math.exp(-spare * each) for each in left)

    def time_of(self, share: float, *, first: bool) -> float:
        """Return within how many seconds such a share of the requests have their first message, or whole answer."""
        low, high = 0.0, 1.0
        while self.within(high, first=first) < share:
            high *= 2
        for _ in range(40):
            middle = (low + high) / 2
            low, high = (low, middle) if self.within(middle, first=first) >= share else (middle, high)
        return high

    def number_within(self, share: float) -> int | None:
        """Return how many slots are enough for such a share of the time. None if more than were measured."""
        total = 0.0
        for number, each in enumerate(self.shares[:-1]):
            total += each
            if total >= share:
                return max(1, number)
        return None


@lru_cache(maxsize=1)  # of one machine all predictions are made
def levels_of(measured: tuple[Level, ...]) -> tuple[Level, ...]:
    """Return what is seen with 1, 2, 3 ... in the server; between two numbers that were measured on a straight line.

    With more than were measured it is as with the most of them.
    """
    return tuple(_at(measured, number + 1) for number in range(round(measured[-1].in_flight)))


def _at(measured: tuple[Level, ...], number: int) -> Level:
    above = next((index for index, level in enumerate(measured) if level.in_flight >= number), None)
    if above is None:
        return measured[-1]
    high = measured[above]
    if high.in_flight == number:
        return high
    low = measured[above - 1]
    part = (number - low.in_flight) / (high.in_flight - low.in_flight)

    def between(one: float, other: float) -> float:
        return one + part * (other - one)

    firsts, wholes = (
        tuple(map(between, *both)) for both in ((low.firsts_s, high.firsts_s), (low.wholes_s, high.wholes_s))
    )
    return Level(number, between(low.per_s, high.per_s), firsts, wholes)
