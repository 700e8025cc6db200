"""Builds the constraints of a model's requests one after the other, and says who is next."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, TypeVar

from weft_server.engine.queue_limits import QueueLimits
from weft_server.models.turns import Turns
from weft_server.sequence import ANYBODY, Standing

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from weft_server.models.worker_pool import WorkerPool
    from weft_server.preprocessing.wanted import Wanted
    from weft_server.telemetry.model_metrics import ModelMetrics

Result = TypeVar("Result")


class ConstraintQueue:
    """One for a model. To be used on the event loop's thread.

    Who waits goes on in the order of the engine's queue: by class, then by the time that their tenant has had.
    """

    def __init__(
        self, worker: WorkerPool, metrics: ModelMetrics, max_requests: int, weights: Mapping[str, float] | None = None
    ) -> None:
        """At most `max_requests` are there at once. Classes and tenants share these places as those of a queue."""
        self._worker, self._metrics = worker, metrics
        self._bounds = QueueLimits(max_requests, 0, weights)
        self._turns = Turns(1, weights)

    async def do(
        self, job: Callable[[Wanted], Result], deadline: float = math.inf, standing: Standing = ANYBODY
    ) -> Result:
        """Run a job that builds a constraint when it is its turn. The deadline is in monotonic seconds.

        Raises:
            Overloaded: as many as may wait are there already.
            DeadlineExpired: the deadline passed before the constraint was built.
        """
        self._bounds.check_places(1, standing)
        self._count(1, standing)
        try:
            async with self._turns.turn(standing, deadline):
                return await self._worker.work(job, deadline)
        finally:
            self._count(-1, standing)

    def supervise(self, timeout_s: float) -> None:
        """Give up a job that takes longer than `timeout_s` seconds."""
        self._worker.supervise(timeout_s)

    def cancel_all(self, outcome: Callable[[], Exception]) -> None:
        """End all that wait, now and from now on. Each gets an outcome of its own."""
        # Those who wait have their turns then, one after the other, and are refused.
        self._worker.cancel_all(outcome)

    def stop(self) -> None:
        """Let the thread finish its job, and end."""
        self._worker.stop()

    def _count(self, change: int, standing: Standing) -> None:
        if change > 0:
            self._bounds.take(change, standing)
        else:
            self._bounds.give_back(-change, standing)
        self._metrics.constraining = self._bounds.num_places
