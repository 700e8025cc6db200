"""When requests are due: at the ticks of a Poisson process, or whenever an answer has come."""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from random import Random

from weft.exceptions import InvalidRequest

MAX_CONCURRENCY = 10_000
MAX_RATE = 100_000.0


@dataclass(frozen=True, slots=True)
class Closed:
    """A closed loop: `concurrency` callers. Each sends as soon as it has its answer.

    `pauses`: or it waits for a random time first, which is as long on average as the answer took (exponential). So half
    of the callers wait for an answer, and they come at random. Without pauses, those whose answers end in the same step
    come together again and again: they share their prompts' runs, and it is faster than it would be.
    """

    concurrency: int
    pauses: bool = False

    kind = "closed"

    @property
    def amount(self) -> float:
        """How much load it is: callers."""
        return self.concurrency

    def __str__(self) -> str:
        return f"{self.concurrency} in flight"


@dataclass(frozen=True, slots=True)
class Open:
    """An open loop: `rate` requests a second on average, at random times, however long the answers take."""

    rate: float

    kind = "open"

    @property
    def amount(self) -> float:
        """How much load it is: requests a second."""
        return self.rate

    def __str__(self) -> str:
        return f"{self.rate:g} requests/s"

    def due(self, random: Random) -> Iterator[float]:
        """Yield, without end, when requests are due, in seconds from the beginning: exponential gaps, so Poisson."""
        at = 0.0
        while True:
            at += random.expovariate(self.rate)
            yield at


Arrivals = Closed | Open


def closed(option: str, concurrency: int) -> Closed:
    """Return a closed loop; an InvalidRequest names the option that it came from."""
    if not 1 <= concurrency <= MAX_CONCURRENCY:
        raise InvalidRequest(f"{option}: must be in [1, {MAX_CONCURRENCY}], not {concurrency}")
    return Closed(concurrency)


def open_(option: str, rate: float) -> Open:
    """Return an open loop; an InvalidRequest names the option that it came from."""
    if not 0 < rate <= MAX_RATE:
        raise InvalidRequest(f"{option}: must be more than 0 and at most {MAX_RATE:g} a second, not {rate:g}")
    return Open(rate)


def parse_sweep(text: str) -> list[Arrivals]:
    """Read `1,2,4` as concurrencies and `rate:5,10,20` as rates."""
    rates = text.removeprefix("rate:")
    number = r"\d+(\.\d+)?" if rates != text else r"\d+"
    parts = rates.split(",")
    if not all(re.fullmatch(number, part) for part in parts):
        raise InvalidRequest(f"--sweep: {text!r} must be concurrencies such as 1,2,4, or rates such as rate:5,10,20")
    if rates != text:
        return [open_("--sweep", float(part)) for part in parts]
    return [closed("--sweep", int(part)) for part in parts]
