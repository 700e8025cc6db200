"""Makes tokens of texts and texts of tokens, beside what a model answers: bounded, and in a thread of its own."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar

from weft_server.engine.queue_limits import QueueLimits

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from weft_server.models.worker_pool import WorkerPool
    from weft_server.preprocessing.wanted import Wanted
    from weft_server.sequence import Standing

Result = TypeVar("Result")


class TokenizeQueue:
    """One for a model. To be used on the event loop's thread."""

    def __init__(self, worker: WorkerPool, max_requests: int, weights: Mapping[str, float] | None = None) -> None:
        """`worker` is none that reads the texts of requests: those would wait behind a flood of others.

        At most `max_requests` are there at once. Classes and tenants share these places as those of a queue.
        """
        self._worker = worker
        # No tokens are counted: each text is bounded by itself.
        self._bounds = QueueLimits(max_requests, 0, weights)

    async def do(self, job: Callable[[Wanted], Result], standing: Standing, deadline: float) -> Result:
        """Run `job` after earlier ones. The deadline is in monotonic seconds.

        Raises:
            Overloaded: as many as may wait are there already.
            DeadlineExpired: the deadline passed before it began.
        """
        self._bounds.check_places(1, standing)
        self._bounds.take(1, standing)
        try:
            return await self._worker.work(job, deadline)
        finally:
            self._bounds.give_back(1, standing)

    def supervise(self, timeout_s: float) -> None:
        """Give up a job that takes longer than `timeout_s` seconds."""
        self._worker.supervise(timeout_s)

    def cancel_all(self, outcome: Callable[[], Exception]) -> None:
        """End all that wait, now and from now on. Each gets an outcome of its own."""
        self._worker.cancel_all(outcome)

    def stop(self) -> None:
        """Let the thread finish its job, and end."""
        self._worker.stop()
