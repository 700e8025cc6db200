"""How long one call may wait for what passes: a server that is not there, or has no room. No calls, no sleep."""

import math
import random
import time
from collections.abc import Callable, Iterator

from weft.exceptions import DeadlineExceeded, Error, Overloaded, Unavailable

# The pauses where the server names none: the first, and the longest, in seconds.
_FIRST_S = 0.2
_LONGEST_S = 5.0
# The first pause of the retries: 0.1, 0.2, 0.4, 0.8.
NUM_RETRIES = 4
_RETRY_S = 0.1
# Less than this before the deadline nothing is asked any more.
_TOO_LATE_S = 0.05
# How often a call that pauses looks whether it was cancelled, or its client closed.
_LOOK_S = 0.1


def is_of_refused_bundle(error: Error) -> bool:
    """Whether a server has the model, and refused its bundle: it names no time after which it would answer."""
    return error.reason == "MODEL_NOT_READY" and error.retry_after is None


def may_pass(error: Error) -> bool:
    """Whether the same call may be answered later, and may be made again: no answer had begun.

    With the wrong certificate, or without TLS, it will not be. Nor will a bundle that was refused answer.
    """
    if is_of_refused_bundle(error):
        return False
    return isinstance(error, Overloaded) or (isinstance(error, Unavailable) and error.reason != "TLS")


class Patience:
    """That of one call.

    Args:
        wait_s: How long it may wait, from its first refusal.
        seconds: Its deadline, from now; infinite for none.
        num_retries: How often it is made again, besides, where no server is there: for streams, as gRPC does for calls.
    """

    def __init__(self, wait_s: float, seconds: float, num_retries: int = 0) -> None:
        self._num_retries = num_retries
        self._retry_s = _RETRY_S
        self._deadline = time.monotonic() + seconds
        self._wait_s = wait_s
        self._give_up_at = math.inf
        self._refused: Error | None = None
        self._longest_s = _FIRST_S

    @property
    def left_s(self) -> float:
        """What is left until the deadline."""
        return max(self._deadline - time.monotonic(), 0.001)

    def pause_s(self, error: Error) -> float:
        """Give the pause after which the call may be made again. Raise the error, if it may not."""
        # gRPC makes these for calls, where a bundle was refused too: another server may have it.
        if self._num_retries and isinstance(error, Unavailable) and error.reason != "TLS":
            return self._retry_pause_s(error)
        if not self._wait_s:
            raise error
        if self._refused is not None and isinstance(error, DeadlineExceeded):
            raise DeadlineExceeded(f"{error.message}; before that: {self._refused.message}") from error
        if not may_pass(error):
            raise error
        now = time.monotonic()
        if self._refused is None:
            self._give_up_at = now + self._wait_s
        self._refused = error
        if error.retry_after is None:
            pause = min(self._backoff_s(), self._give_up_at - now, (self._deadline - now) / 2)
        else:  # of many callers who were refused at once not all shall come back at once
            pause = error.retry_after * random.uniform(1.0, 1.25)  # noqa: S311
        if now >= self._give_up_at or now + pause > min(self._give_up_at, self._deadline - _TOO_LATE_S):
            raise error
        return pause

    def _retry_pause_s(self, error: Error) -> float:
        self._num_retries -= 1
        pause, self._retry_s = self._retry_s * random.uniform(0.8, 1.2), 2 * self._retry_s  # noqa: S311
        if pause > self.left_s:
            raise error
        return pause

    def _backoff_s(self) -> float:
        """Draw a pause; the next one may be twice as long."""
        longest, self._longest_s = self._longest_s, min(2 * self._longest_s, _LONGEST_S)
        return longest * random.uniform(0.5, 1.0)  # noqa: S311


def pieces(pause_s: float, is_over: Callable[[], bool]) -> Iterator[float]:
    """Cut a pause, so that whoever sleeps looks often enough whether it is over before its time."""
    until = time.monotonic() + pause_s
    while not is_over() and (left := until - time.monotonic()) > 0:
        yield min(left, _LOOK_S)
