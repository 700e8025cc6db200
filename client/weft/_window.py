"""Which of many inputs are asked now: bounded, in order, and patient with a server that is full. No clock, no calls."""

import random
from collections import deque
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from google.protobuf.message import Message

from weft._fields import refusal
from weft._patience import may_pass
from weft._status import Reach
from weft.exceptions import Error

Answer = TypeVar("Answer")

# The answers that may wait for a slower one before them, or for their reader, are this many times `concurrency`.
_AHEAD = 4
# Where the server is full and does not say for how long.
_PAUSE_S = 1.0


def checked_concurrency(given: Any) -> int:
    """Return a number of requests that may be in flight; raises InvalidRequest for what is none."""
    if isinstance(given, bool) or not isinstance(given, int) or given < 1:
        raise refusal("concurrency", f"must be a whole number of at least 1, not {given!r}")
    return given


@dataclass(eq=False, slots=True)
class Asked(Generic[Answer]):
    """One input. `outcome` is None until it has one, and `call` is what runs for it.

    `refused_at` is when the server was full for it, at first, and `again_at` when it may be asked again.
    """

    request: Message | None
    outcome: Answer | Error | None = None
    call: Any = None
    refused_at: float | None = None
    again_at: float = 0.0


class Window(Generic[Answer]):
    """The inputs that were read and whose answers were not taken yet.

    A full server is no failure: what it refuses is asked again after the pause that it asks for. Until then no more
    runs at once than it took, and later as many more as there are answers. Where it took none, nothing is sent. So is a
    server waited for that is starting or draining, or that went away.

    Args:
        concurrency: How many may run at once.
        patience_s: How long an input may wait for a server, from its first refusal.
        reach: What is known of the servers.
        wait_s: The same where no server ever was there.
    """

    def __init__(self, concurrency: int, patience_s: float, reach: Reach, wait_s: float = 0.0) -> None:
        self._concurrency = concurrency
        self._patience_s = patience_s
        self._wait_s = wait_s
        self._reach = reach
        self._asked: deque[Asked[Answer]] = deque()
        self._refused: list[Asked[Answer]] = []
        self._num_running = 0
        self._room = float(concurrency)
        # When more may run at once than now, and when anything may.
        self._grow_at = 0.0
        self._resume_at = 0.0

    def __len__(self) -> int:
        return len(self._asked)

    def may_send(self, now: float) -> bool:
        """Whether one more call may begin."""
        return self._num_running < int(self._room) and now >= self._resume_at

    @property
    def is_full(self) -> bool:
        """Whether no further input may be read."""
        return len(self._asked) >= _AHEAD * self._concurrency

    def read(self, request: Message | Error) -> Asked[Answer]:
        """Take one input, or what is wrong with it, behind all others."""
        asked: Asked[Answer] = Asked(None, request) if isinstance(request, Error) else Asked(request)
        self._asked.append(asked)
        return asked

    def again(self, now: float) -> Asked[Answer] | None:
        """Give the first input that was refused and may be asked again; None if there is none."""
        ready = [asked for asked in self._refused if asked.again_at <= now]
        if not ready:
            return None
        first = min(ready, key=self._asked.index)
        self._refused.remove(first)
        return first

    def started(self, asked: Asked[Answer], call: Any) -> None:
        """Note the call that now runs."""
        asked.call = call
        self._num_running += 1

    def ended(self, asked: Asked[Answer], outcome: Answer | Error, now: float) -> None:
        """Note how a call ended."""
        asked.call = None
        self._num_running -= 1
        if not self._asked:
            return  # all were given up meanwhile
        if isinstance(outcome, Error):
            if self._may_wait(asked, outcome, now):
                self._wait(asked, outcome.retry_after, now)
                return
        elif now >= self._grow_at:
            self._room = min(float(self._concurrency), self._room + 1.0 / self._room)
        asked.request = None
        asked.outcome = outcome

    def _may_wait(self, asked: Asked[Answer], error: Error, now: float) -> bool:
        """Whether an input is asked again after an error. Of a server that goes away, some calls are cancelled."""
        if not (may_pass(error) or self._reach.is_of_a_server(error)):
            return False
        if asked.refused_at is None:
            asked.refused_at = now
        longest_s = self._patience_s if self._reach.answered else self._wait_s
        left_s = asked.refused_at + longest_s - now
        return left_s > 0 and (error.retry_after or 0.0) <= left_s

    def _wait(self, asked: Asked[Answer], pause_s: float | None, now: float) -> None:
        self._refused.append(asked)
        # Of many callers who were refused at once not all shall come back at once.
        asked.again_at = now + (_PAUSE_S if pause_s is None else pause_s) * random.uniform(1.0, 1.25)  # noqa: S311
        self._room = max(1.0, float(self._num_running))
        self._grow_at = max(self._grow_at, asked.again_at)
        if not self._num_running:
            self._resume_at = self._grow_at

    def pause_s(self, now: float) -> float | None:
        """Return after how long more may be sent than now; None if only an answer can change that."""
        if self._num_running >= int(self._room):
            return None
        if now < self._resume_at:
            return self._resume_at - now
        return min((asked.again_at - now for asked in self._refused if asked.again_at > now), default=None)

    def take(self) -> Answer | Error | None:
        """Give the outcome of the first input, which then is forgotten; None while it has none."""
        if not self._asked or (outcome := self._asked[0].outcome) is None:
            return None
        self._asked.popleft()
        return outcome

    def clear(self) -> list[Any]:
        """Forget everything and give the calls that run."""
        calls = [asked.call for asked in self._asked if asked.call is not None]
        self._asked.clear()
        self._refused.clear()
        return calls
