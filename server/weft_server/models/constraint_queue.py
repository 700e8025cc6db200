"""Builds the constraints of a model's requests one after the other, and says who is next."""

from __future__ import annotations

import asyncio
import math
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TypeVar

from weft_server.engine.queue_limits import QueueLimits
from weft_server.engine.request_queue import RequestQueue
from weft_server.sequence import ANYBODY, Standing, Times

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from weft_server.models.worker_pool import WorkerPool
    from weft_server.preprocessing.wanted import Wanted
    from weft_server.telemetry.model_metrics import ModelMetrics

Result = TypeVar("Result")
# Milliseconds that a tenant is charged for a turn at first. What it did not take is given back.
_MOST_MS = 2000


@dataclass(slots=True, eq=False)
class _Turn:
    """One who waits. The queue asks of it what it asks of a sequence, and milliseconds are its tokens."""

    standing: Standing
    times: Times
    called: asyncio.Future[None]
    # Monotonic seconds at which it was called.
    begun: float = 0.0
    num_output_tokens: int = 0
    most_tokens: int = field(default=_MOST_MS, init=False)
    num_input_tokens: int = field(default=0, init=False)
    is_costly: bool = field(default=False, init=False)


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
        # It is given turns instead of sequences.
        self._waiting: Any = RequestQueue(weights)
        self._building: _Turn | None = None

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
        now = time.monotonic()
        turn = _Turn(standing, Times(accepted=now), asyncio.get_running_loop().create_future())
        self._waiting.add(turn)
        try:
            self._call_next()
            await turn.called
            return await self._worker.work(job, deadline)
        finally:
            self._count(-1, standing)
            self._leave(turn)

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

    def _call_next(self) -> None:
        while self._building is None and self._waiting:
            turn: _Turn = self._waiting.first()
            if turn.called.cancelled():  # its task was cancelled, and has not run since
                self._waiting.remove(turn)
                continue
            self._waiting.admit(turn)
            self._building, turn.begun = turn, time.monotonic()
            turn.called.set_result(None)

    def _leave(self, turn: _Turn) -> None:
        if turn is not self._building:
            self._waiting.remove(turn)
            return
        turn.num_output_tokens = min(_MOST_MS, 1 + int(1000 * (time.monotonic() - turn.begun)))
        self._waiting.end(turn)
        self._building = None
        self._call_next()
