"""One request of a load: when it was due, when it was sent, what came when, and how it ended."""

from array import array
from dataclasses import dataclass, field
from enum import Enum, auto
from math import nan

from weft.exceptions import Error


class Outcome(Enum):
    """How a request ended; UNFINISHED when the measurement ended before it."""

    UNFINISHED = auto()
    COMPLETED = auto()
    CANCELLED = auto()
    FAILED = auto()


@dataclass(slots=True)
class Record:
    """All times are monotonic seconds; durations are the server's own words, in seconds.

    `arrivals` are the times of a stream's messages, the final one, which holds no text, included; of a unary call none.
    `ends_itself` is whether the last token was the end-of-sequence token, which no text belongs to.
    """

    due: float
    sent: float = nan
    ended: float = nan
    arrivals: "array[float]" = field(default_factory=lambda: array("d"))
    outcome: Outcome = Outcome.UNFINISHED
    status: str = ""
    error: Error | None = None
    input_tokens: int = 0
    output_tokens: int = 0
    ends_itself: bool = False
    queue: float = 0.0
    prefill: float = 0.0
    decode: float = 0.0

    @property
    def e2e(self) -> float:
        """From when it was due to its end: what the caller waited, a late generator included."""
        return self.ended - self.due

    @property
    def ttft(self) -> float | None:
        """From when it was due to its first message; None for a unary call."""
        return self.arrivals[0] - self.due if self.arrivals else None

    @property
    def tpot(self) -> float | None:
        """(e2e - ttft) / (tokens - 1); None for a unary call or a single token."""
        if (ttft := self.ttft) is None or self.output_tokens < 2:
            return None
        return (self.e2e - ttft) / (self.output_tokens - 1)

    @property
    def num_deltas(self) -> int:
        """Messages that held text."""
        return max(0, len(self.arrivals) - 1)

    @property
    def tokens_per_gap(self) -> float:
        """Tokens that a message with text after the first, which holds one, stood for on average.

        At least 1, for half a character may come last.
        """
        return max(1.0, (self.output_tokens - self.ends_itself - 1) / max(1, self.num_deltas - 1))

    def gaps(self) -> list[float]:
        """Return the seconds from each message with text to the next."""
        times = self.arrivals
        return [times[index] - times[index - 1] for index in range(1, self.num_deltas)]

    def share_of_work(self, start: float, stop: float) -> float:
        """Return how much of the server's work for it, prefill and decode, lay between two times, [0, 1].

        A rate that counted whole answers would depend on how many happen to end just before the measurement does; where
        many of equal length run in step, that is all of them or none.
        """
        work = self.prefill + self.decode
        if work <= 0.0:
            return float(start <= self.ended <= stop)
        return max(0.0, min(self.ended, stop) - max(self.ended - work, start)) / work
