"""Who may have pictures on the way: few requests of a model at once, and the others in the order in which they came."""

from __future__ import annotations

import asyncio
import math
import time
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

from weft_server.engine.queue_limits import Throughput, retry_after_s
from weft_server.errors import DeadlineExpired, Overloaded

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator

# Requests of a model. Each holds the pixels and features of its own.
MAX_SEEING = 4


class Seeing:
    """One for a model. To be used on the event loop's thread, but for `num_requests` and `oldest`.

    A request is in here before it waits for a slot, and has its place in the queue of the engine all the time.
    """

    def __init__(self, most: int = MAX_SEEING) -> None:
        self._places = asyncio.Semaphore(most)
        # Since when each request is on its way, in monotonic seconds.
        self._started: dict[object, float] = {}
        self._num_waiting = 0
        self._throughput = Throughput()
        # When one last went on, or began to wait behind nobody.
        self._moved = 0.0

    @property
    def num_requests(self) -> int:
        """Requests that have a place or wait for one."""
        return len(self._started)

    @property
    def oldest(self) -> float:
        """Since when the oldest of them is on its way, in monotonic seconds. Infinite: there is none."""
        # A scrape is on another thread.
        return min(list(self._started.values()), default=math.inf)

    def wait_s(self) -> float:
        """Seconds that a request which comes now is going to wait. 0 where nobody waits, or the pace is not known."""
        return self._throughput.wait_s(self._num_waiting) if self._num_waiting else 0.0

    @asynccontextmanager
    async def place(self, started: float, deadline: float = math.inf) -> AsyncGenerator[None]:
        """Hold a place. Both times are in monotonic seconds.

        Raises:
            Overloaded: the deadline would pass while it waits.
            DeadlineExpired: it has passed.
        """
        now, key = time.monotonic(), object()
        if now + (wait_s := self.wait_s()) > deadline:
            seconds = f"{wait_s:.1f} s, and the deadline is in {max(0.0, deadline - now):.1f} s"
            why = f"pictures of those who wait already take about {seconds}"
            raise Overloaded("DEADLINE_TOO_NEAR", why, retry_after_s(wait_s))
        self._started[key] = started
        try:
            await self._come(now, deadline)
            try:
                yield
            finally:
                self._places.release()
        finally:
            del self._started[key]

    async def _come(self, now: float, deadline: float) -> None:
        if not self._places.locked():
            await self._places.acquire()
            return
        if not self._num_waiting:
            self._throughput.fade(max(0.0, now - self._moved))
            self._moved = now
        self._num_waiting += 1
        try:
            async with asyncio.timeout(None if deadline == math.inf else deadline - now):
                await self._places.acquire()
        except TimeoutError:
            raise DeadlineExpired from None
        finally:
            self._num_waiting -= 1
        came = time.monotonic()
        self._throughput.note(1, came - self._moved)
        self._moved = came
