"""Keeps the refusals of a flood from taking the time that the answers need.

gRPC ends calls that nobody takes for less than a refusal of ours costs. So beyond some refusals in a moment, the
event loop sleeps until the moment is over. Lanes go on meanwhile. Answers are some milliseconds later.
"""

import time

# A moment, and the refusals that it may have. These are 200 a second, which take about 6 % of a processor.
MOMENT_S = 0.010
MOST = 2


class Brake:
    """One for the event loop, which alone calls it."""

    def __init__(self) -> None:
        self._end = 0.0
        self._count = 0

    def refused(self) -> None:
        """Count a refusal. The last one of a moment sleeps."""
        now = time.monotonic()
        if now >= self._end:
            self._end = now + MOMENT_S
            self._count = 0
        self._count += 1
        if self._count >= MOST:
            time.sleep(max(0.0, self._end - now))
