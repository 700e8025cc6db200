"""How long inputs and answers are: one number, a range, or a log-normal distribution."""

import math
import re
from dataclasses import dataclass
from random import Random

from weft.exceptions import InvalidRequest

FORMS = "a number such as 64, a range such as 8..40, or lognormal:MEDIAN,SIGMA such as lognormal:64,0.5"

MAX_SIGMA = 4.0

_RANGE = re.compile(r"(\d+)(?:\.\.(\d+))?")
_LOG_NORMAL = re.compile(r"lognormal:(\d+),(\d+(?:\.\d+)?)")


@dataclass(frozen=True, slots=True)
class Uniform:
    """Each length in [low, high] is as likely as any other."""

    low: int
    high: int

    @property
    def least_limit(self) -> int:
        """The smallest limit under which lengths can be drawn: here the longest that will be."""
        return self.high

    def draw(self, random: Random, limit: int) -> int:  # noqa: ARG002 - what does not fit was refused
        """Return one length, in tokens."""
        return random.randint(self.low, self.high)


@dataclass(frozen=True, slots=True)
class LogNormal:
    """exp(N(ln median, sigma)), rounded; what would be 0 or over the limit is drawn again."""

    median: int
    sigma: float

    @property
    def least_limit(self) -> int:
        """The smallest limit under which lengths can be drawn: half of them fit, so drawing again comes to an end."""
        return self.median

    def draw(self, random: Random, limit: int) -> int:
        """Return one length in [1, limit], in tokens."""
        while True:
            length = round(random.lognormvariate(math.log(self.median), self.sigma))
            if 1 <= length <= limit:
                return length


Lengths = Uniform | LogNormal


def parse_lengths(option: str, text: str) -> Lengths:
    """Read a distribution of lengths; an InvalidRequest names the option that it came from."""
    if match := _RANGE.fullmatch(text):
        low = int(match[1])
        high = low if match[2] is None else int(match[2])
        if not 1 <= low <= high:
            raise InvalidRequest(f"{option}: {text} must begin at 1 or more and not end before it begins")
        return Uniform(low, high)
    if match := _LOG_NORMAL.fullmatch(text):
        if int(match[1]) < 1 or not float(match[2]) <= MAX_SIGMA:
            raise InvalidRequest(f"{option}: the median must be at least 1 token, and sigma in [0, {MAX_SIGMA:g}]")
        return LogNormal(int(match[1]), float(match[2]))
    raise InvalidRequest(f"{option}: {text!r} must be {FORMS}")
