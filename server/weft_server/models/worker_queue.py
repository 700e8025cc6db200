"""A bounded queue before a thread of its own, for what a model does beside its answers: tokens, and constraints."""

from __future__ import annotations

import math
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, TypeVar

from weft_server.engine.queue_limits import QueueLimits
from weft_server.models.turns import Turns
from weft_server.sequence import ANYBODY, Standing

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Callable, Mapping

    from weft_server.models.worker_pool import WorkerPool
    from weft_server.preprocessing.wanted import Wanted
    from weft_server.telemetry.model_metrics import ModelMetrics

Result = TypeVar("Result")


class WorkerQueue:
    """One for a model. To be used on the event loop's thread. Jobs are done in the order in which they came."""

    def __init__(self, worker: WorkerPool, max_requests: int, weights: Mapping[str, float] | None = None) -> None:
        """`worker` is none that reads the texts of requests: those would wait behind a flood of others.

        At most `max_requests` are there at once. Classes and tenants share these places as those of a queue.
        """
        self._worker = worker
        # No tokens are counted: each job is bounded by itself.
        self._bounds = QueueLimits(max_requests, 0, weights)

    async def do(
        self, job: Callable[[Wanted], Result], deadline: float = math.inf, standing: Standing = ANYBODY
    ) -> Result:
        """Run a job when it is its turn. The deadline is in monotonic seconds.

        Raises:
            Overloaded: as many as may wait are there already.
            DeadlineExpired: the deadline passed before the job began, or was done.
        """
        self._bounds.check_places(1, standing)
        async with self._place(standing, deadline):
            return await self._worker.work(job, deadline)

    def supervise(self, timeout_s: float) -> None:
        """Give up a job that takes longer than `timeout_s` seconds."""
        self._worker.supervise(timeout_s)

    def cancel_all(self, outcome: Callable[[], Exception]) -> None:
        """End all that wait, now and from now on. Each gets an outcome of its own."""
        self._worker.cancel_all(outcome)

    def stop(self) -> None:
        """Let the thread finish its job, and end."""
        self._worker.stop()

    @asynccontextmanager
    async def _place(self, standing: Standing, deadline: float) -> AsyncGenerator[None]:  # noqa: ARG002 - who has turns waits
        """Hold one of the places."""
        self._bounds.take(1, standing)
        try:
            yield
        finally:
            self._bounds.give_back(1, standing)


class ConstraintQueue(WorkerQueue):
    """Builds the constraints of a model's requests one after the other.

    Who waits goes on in the order of the engine's queue: by class, then by the time that their tenant has had.
    Of those whom `cancel_all` ends, each has its turn then, and is refused.
    """

    def __init__(
        self, worker: WorkerPool, metrics: ModelMetrics, max_requests: int, weights: Mapping[str, float] | None = None
    ) -> None:
        super().__init__(worker, max_requests, weights)
        self._metrics = metrics
        self._turns = Turns(1, weights)

    @asynccontextmanager
    async def _place(self, standing: Standing, deadline: float) -> AsyncGenerator[None]:
        """Hold one of the places, and then the turn."""
        try:
            async with super()._place(standing, deadline):
                self._metrics.constraining = self._bounds.num_places
                async with self._turns.turn(standing, deadline):
                    yield
        finally:
            self._metrics.constraining = self._bounds.num_places
