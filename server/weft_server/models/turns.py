"""Lets few at once go on, and others in the order of the engine's queue: by class, then by what tenants have had."""

from __future__ import annotations

import asyncio
import math
import time
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from weft_server.engine.queue_limits import QueueLimits, Throughput
from weft_server.engine.request_queue import RequestQueue
from weft_server.errors import DeadlineExpired
from weft_server.sequence import ANYBODY, Standing, Times

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Mapping

# Milliseconds that a tenant is charged for a turn at first. What it did not take is given back.
_MOST_MS = 2000


@dataclass(slots=True, eq=False)
class _Turn:
    """One who waits. The queue asks of it what it asks of a sequence, and milliseconds are its tokens."""

    standing: Standing
    times: Times
    called: asyncio.Future[None]
    # Whether others were there when it came.
    is_behind: bool
    # Monotonic seconds at which it was called.
    begun: float = math.inf
    num_output_tokens: int = 0
    most_tokens: int = field(default=_MOST_MS, init=False)
    num_input_tokens: int = field(default=0, init=False)
    is_costly: bool = field(default=False, init=False)


class Turns:
    """To be used on the event loop's thread."""

    def __init__(self, most: int, weights: Mapping[str, float] | None = None) -> None:
        """At most `most` go on at once. Tenants without a weight have 1."""
        self._free = most
        # It is given turns instead of sequences.
        self._waiting: Any = RequestQueue(weights)
        # Counts those who wait behind others. How many may, their callers say.
        self._behind = QueueLimits(0, 0, weights)
        self._throughput = Throughput()
        # When one last went on, or began to wait behind nobody.
        self._moved = 0.0

    def wait_s(self, standing: Standing = ANYBODY) -> float:
        """Seconds that one who comes now is going to wait. 0 where nobody waits, or the pace is not known."""
        return self._throughput.wait_s(self._behind.num_ahead(standing)) if self._behind.num_places else 0.0

    @asynccontextmanager
    async def turn(self, standing: Standing = ANYBODY, deadline: float = math.inf) -> AsyncGenerator[None]:
        """Hold a turn once it has come. The deadline is in monotonic seconds.

        Raises:
            DeadlineExpired: it has passed before that.
        """
        now, loop = time.monotonic(), asyncio.get_running_loop()
        turn = _Turn(standing, Times(accepted=now), loop.create_future(), is_behind=not self._free)
        self._come(turn)
        try:
            try:
                async with asyncio.timeout(None if deadline == math.inf else deadline - now):
                    await turn.called
            except TimeoutError:
                raise DeadlineExpired from None
            yield
        finally:
            self._leave(turn)

    def _come(self, turn: _Turn) -> None:
        if turn.is_behind:
            if not self._behind.num_places:
                self._throughput.fade(max(0.0, turn.times.accepted - self._moved))
                self._moved = turn.times.accepted
            self._behind.take(1, turn.standing)
        self._waiting.add(turn)
        self._call_next()

    def _call_next(self) -> None:
        while self._free and self._waiting:
            turn: _Turn = self._waiting.first()
            if turn.called.cancelled():  # its task was cancelled, and has not run since
                self._give_up(turn)
                continue
            self._waiting.admit(turn)
            self._free -= 1
            turn.begun = time.monotonic()
            if turn.is_behind:
                self._behind.give_back(1, turn.standing)
                self._throughput.note(1, turn.begun - self._moved)
                self._moved = turn.begun
            turn.called.set_result(None)

    def _give_up(self, turn: _Turn) -> None:
        if self._waiting.remove(turn) and turn.is_behind:
            self._behind.give_back(1, turn.standing)

    def _leave(self, turn: _Turn) -> None:
        if turn.begun == math.inf:
            self._give_up(turn)
            return
        turn.num_output_tokens = min(_MOST_MS, 1 + int(1000 * (time.monotonic() - turn.begun)))
        self._waiting.end(turn)
        self._free += 1
        self._call_next()
