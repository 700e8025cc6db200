"""Who may have pictures on the way: few requests of a model at once, and the others by class and by tenant."""

from __future__ import annotations

import math
import time
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

from weft_server.engine.queue_limits import retry_after_s
from weft_server.errors import Overloaded
from weft_server.models.turns import Turns
from weft_server.sequence import ANYBODY, Standing

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Mapping

# Requests of a model. Each holds the pixels and features of its own.
MAX_SEEING = 4


class Seeing:
    """One for a model. To be used on the event loop's thread, but for `num_requests` and `oldest`.

    A request is in here before it waits for a slot, and has its place in the queue of the engine all the time.
    """

    def __init__(self, most: int = MAX_SEEING, weights: Mapping[str, float] | None = None) -> None:
        """At most `most` requests have pictures on the way at once. Tenants without a weight have 1."""
        self._turns = Turns(most, weights)
        # Since when each request is on its way, in monotonic seconds.
        self._started: dict[object, float] = {}

    @property
    def num_requests(self) -> int:
        """Requests that have a place or wait for one."""
        return len(self._started)

    @property
    def oldest(self) -> float:
        """Since when the oldest of them is on its way, in monotonic seconds. Infinite: there is none."""
        # A scrape is on another thread.
        return min(list(self._started.values()), default=math.inf)

    def wait_s(self, standing: Standing = ANYBODY) -> float:
        """Seconds that a request which comes now is going to wait. 0 where nobody waits, or the pace is not known."""
        return self._turns.wait_s(standing)

    @asynccontextmanager
    async def place(
        self, started: float, deadline: float = math.inf, standing: Standing = ANYBODY
    ) -> AsyncGenerator[None]:
        """Hold a place. Both times are in monotonic seconds.

        Raises:
            Overloaded: the deadline would pass while it waits.
            DeadlineExpired: it has passed.
        """
        now, key = time.monotonic(), object()
        if now + (wait_s := self.wait_s(standing)) > deadline:
            seconds = f"{wait_s:.1f} s, and the deadline is in {max(0.0, deadline - now):.1f} s"
            why = f"pictures of those who wait already take about {seconds}"
            raise Overloaded("DEADLINE_TOO_NEAR", why, retry_after_s(wait_s))
        self._started[key] = started
        try:
            async with self._turns.turn(standing, deadline):
                yield
        finally:
            del self._started[key]
