"""How many lanes and workers of a model may still fail before the server ends, for somebody else to start it anew."""

from __future__ import annotations

import threading
import time
from collections import deque

# Failures are forgotten after this time.
WINDOW_S = 600.0


class FailureBudget:
    """A budget of `most` failures in WINDOW_S seconds. Any thread may spend of it."""

    def __init__(self, most: int) -> None:
        self.most = most
        self._lock = threading.Lock()
        # Monotonic seconds, the oldest first.
        self._failures: deque[float] = deque()
        # Once more have failed than may: for good.
        self.is_spent = False

    def spend(self) -> bool:
        """Count a failure. Returns whether there was any budget left for it."""
        with self._lock:
            self._forget()
            self._failures.append(time.monotonic())
            self.is_spent |= len(self._failures) > self.most
            return not self.is_spent

    def exhaust(self) -> None:
        """Let nothing fail any more."""
        self.is_spent = True

    @property
    def num_left(self) -> int:
        """How many may still fail."""
        with self._lock:
            self._forget()
            return 0 if self.is_spent else self.most - len(self._failures)

    def _forget(self) -> None:
        while self._failures and self._failures[0] < time.monotonic() - WINDOW_S:
            self._failures.popleft()
