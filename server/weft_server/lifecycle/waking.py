"""A model that sleeps, and the requests that wait until it is awake: they share one load."""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING

from weft_server.engine.queue_limits import QueueLimits
from weft_server.errors import Draining, ModelNotReady
from weft_server.sequence import ANYBODY

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping

    from weft_server.sequence import Standing

# After a failure, nobody tries again for this long.
PAUSE_S = 5.0


class Waking:
    """One for each time that a model sleeps. To be used on the event loop's thread."""

    def __init__(
        self,
        who: str,
        wake: Callable[[], Awaitable[str]],
        max_waiting: int,
        weights: Mapping[str, float] | None = None,
    ) -> None:
        """`wake` loads the model, and returns why it failed, or nothing. `who` is its name for people.

        Classes and tenants share the places of `max_waiting` requests as those of a queue.
        """
        self._who = who
        self._wake = wake
        self._bounds = QueueLimits(max_waiting, 0, weights)
        self._task: asyncio.Task[None] | None = None
        self._why = ""
        self._retry_at = 0.0

    @property
    def num_waiting(self) -> int:
        """Requests that wait until the model is awake."""
        return self._bounds.num_places

    async def __call__(self, standing: Standing = ANYBODY) -> None:
        """Return when the model is awake, or has left meanwhile.

        Raises:
            ModelNotReady: it could not be loaded, now or a moment ago.
            Overloaded: as many requests as may wait do so already.
            Draining: the server leaves.
        """
        self._check_failure()
        self._bounds.check_places(1, standing)
        if self._task is None:
            self._task = asyncio.create_task(self._try())
        task = self._task
        self._bounds.take(1, standing)
        try:
            # The load goes on if this request goes.
            await asyncio.wait([task])
        finally:
            self._bounds.give_back(1, standing)
        if isinstance(task.exception(), Draining):
            raise Draining("the server is draining and loads no models")
        task.result()
        self._check_failure()

    async def _try(self) -> None:
        try:
            self._why = await self._wake()
        finally:
            self._task = None
        self._retry_at = time.monotonic() + PAUSE_S

    def _check_failure(self) -> None:
        left = self._retry_at - time.monotonic()
        if self._why and left > 0:
            raise ModelNotReady(f"{self._who} could not be woken: {self._why}", left)
