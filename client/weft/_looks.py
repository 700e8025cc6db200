"""Looking again and again whether a server serves, until it does or the time is over."""

import math
import time
from collections.abc import Iterator
from contextlib import contextmanager

from weft._channel import CallSettings
from weft.exceptions import DeadlineExceeded, Unavailable


class Looks:
    """What both clients know of it: how long is left, and why the server does not serve yet."""

    def __init__(self, settings: CallSettings, timeout: float | None) -> None:
        self._target = settings.target
        self._give_up = time.monotonic() + (settings.seconds(timeout) or math.inf)
        self._why = f"{self._target}: no answer"

    def one_by_one(self) -> Iterator[float]:
        """Give how many seconds are left, before each look; whoever looks pauses after it.

        Raises DeadlineExceeded when the time is over.
        """
        while (left := self._left()) > 0:
            yield left
        raise DeadlineExceeded(f"not ready in time: {self._why}")

    def pause(self) -> float:
        """Return how many seconds to wait before the next look."""
        return min(0.1, max(0.0, self._left()))

    def _left(self) -> float:
        return self._give_up - time.monotonic()

    @contextmanager
    def look(self) -> Iterator[None]:
        """Look once. What the server cannot say, or says, is remembered as the reason."""
        try:
            yield
            self._why = f"{self._target}: it answers that it does not serve"
        except Unavailable as error:
            self._why = error.message
        except DeadlineExceeded:
            pass  # the last look runs out of time, and says less than those before
