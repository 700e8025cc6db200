"""How fast a queue empties, by which a request can be told how long it would wait."""

import math

# Seconds over which the pace is averaged: what was seen this long ago counts a third of what is seen now.
MEMORY_S = 5.0
# With less than this to go by, the pace is not known.
LEAST_S = 0.5


class Throughput:
    """Requests that go on in a second, while others wait behind them. A room that is empty says nothing of the pace."""

    def __init__(self) -> None:
        self._taken = 0.0
        self._seconds = 0.0

    def note(self, num_taken: int, seconds: float) -> None:
        """Requests went on, `seconds` after the last ones, or after the first one began to wait."""
        self.fade(seconds)
        self._taken += num_taken
        self._seconds += seconds

    def fade(self, seconds: float) -> None:
        """Let what is known count less, for nobody has waited for so long."""
        kept = math.exp(-seconds / MEMORY_S)
        self._taken *= kept
        self._seconds *= kept

    def wait_s(self, num_ahead: int) -> float:
        """Seconds that a request with so many ahead of it is going to wait. 0 if the pace is not known."""
        if self._seconds < LEAST_S or not self._taken:
            return 0.0
        return num_ahead * self._seconds / self._taken
