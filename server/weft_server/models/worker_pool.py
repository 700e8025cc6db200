"""Threads that do a model's jobs beside the event loop and the lanes. One that hangs is given up, and replaced."""

from __future__ import annotations

import asyncio
import math
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TypeVar

from weft_server.engine.failure import Failure
from weft_server.errors import Overloaded
from weft_server.preprocessing.wanted import Wanted
from weft_server.process.failpoints import POINTS
from weft_server.process.threads import threads_to_be_had

if TYPE_CHECKING:
    from collections.abc import Callable

    from weft_server.engine.failure import FailureBudget
    from weft_server.telemetry.model_metrics import ModelMetrics

Result = TypeVar("Result")


@dataclass(slots=True, eq=False)
class _Job:
    """One job, from the moment when it is wanted."""

    do: Callable[[], Any]
    future: asyncio.Future[Any] = field(init=False)
    # Monotonic seconds. None until it has begun.
    begun: float | None = None
    # What whoever waits for it is told in place of its result.
    outcome: Exception | None = None
    # Whether it waits for other threads than those it was given to.
    has_moved: bool = False


class WorkerPool:
    """`num` threads, which take one job after the other. For the event loop's thread."""

    def __init__(self, num: int, name: str, metrics: ModelMetrics, failure_budget: FailureBudget) -> None:
        self._num = num
        self._name = name
        self._metrics = metrics
        self._failure_budget = failure_budget
        self._pool = ThreadPoolExecutor(num, thread_name_prefix=name)
        # Guards what both a job's thread and the event loop change: `begun`, `has_moved`, `_running` and `_strays`.
        self._lock = threading.Lock()
        # In the order in which they came.
        self._wanted: dict[_Job, None] = {}
        # Also those that nobody waits for any more.
        self._running: set[_Job] = set()
        # Those that were given up, and whose threads still hang.
        self._strays: set[_Job] = set()
        self._refusal: Callable[[], Exception] | None = None
        if POINTS:
            POINTS.wire(self, "_do", f"{metrics.name}.{name.rsplit('-', 1)[-1]}-job")

    async def work(self, job: Callable[[Wanted], Result], deadline: float = math.inf) -> Result:
        """Do as `do` with a job that stops where it asks whether it is still wanted.

        Nobody waits for the job any more in two cases: its deadline (monotonic seconds) has passed, or the task that
        awaits it is cancelled. Then it does not begin. If it has begun, it ends with DeadlineExpired where it asks
        next.
        """
        wanted = Wanted(deadline)

        def run() -> Result:
            wanted.check()
            return job(wanted)

        try:
            return await self.do(run)
        finally:
            wanted.give_up()

    async def do(self, do: Callable[[], Result]) -> Result:
        """Run a job after earlier ones, and return what it gives.

        Raises:
            LaneFailed: it took too long. See `supervise`.
            Overloaded: the machine has no thread for it.
            Exception: that of the job, or the outcome of `cancel_all`.
        """
        job = _Job(do)
        self._wanted[job] = None
        try:
            while True:
                if self._refusal is not None:
                    raise self._refusal()
                try:
                    with threads_to_be_had():
                        job.future = asyncio.get_running_loop().run_in_executor(self._pool, self._run, job, self._pool)
                except Overloaded:
                    # The pool has it nevertheless.
                    job.has_moved = True
                    raise
                try:
                    result: Result = await job.future
                except asyncio.CancelledError:
                    task = asyncio.current_task()
                    if job.outcome is not None:
                        raise job.outcome from None
                    if not job.has_moved or (task and task.cancelling()):
                        raise
                    job.has_moved = False
                else:
                    return result
        finally:
            del self._wanted[job]
            # Its thread's queue has it until its turn. What it would have read or computed is let go now.
            job.do = _nothing

    @property
    def num_wanted(self) -> int:
        """Jobs that somebody waits for, whether they have begun or not."""
        return len(self._wanted)

    @property
    def num_running(self) -> int:
        """Jobs that threads do now, also for nobody."""
        return len(self._running)

    @property
    def num_stuck(self) -> int:
        """Threads that were given up, and hang still."""
        return len(self._strays)

    def supervise(self, timeout_s: float) -> None:
        """Give up threads whose job takes longer than `timeout_s` seconds, and have others in their place.

        Whoever waits for such a job is told. Jobs that have not begun are moved.
        """
        late = time.monotonic() - timeout_s
        with self._lock:
            stuck = [job for job in self._running if job.begun is not None and job.begun < late]
            self._running.difference_update(stuck)
            self._strays.update(stuck)
            if len(self._strays) > self._failure_budget.most:
                self._failure_budget.exhaust()
            if not stuck:
                return
            for job in self._wanted:
                job.has_moved = job.begun is None
        self._pool.shutdown(wait=False)
        self._pool = ThreadPoolExecutor(self._num, thread_name_prefix=self._name)
        for job in stuck:
            failure = Failure("WORKER_STUCK", f"a job did not end within {timeout_s:g} s")
            failure.note(self._metrics, workers=self._name)
            job.outcome = failure.outcome()
            job.future.cancel()
            self._failure_budget.spend()
        for job in [job for job in self._wanted if job.has_moved]:
            job.future.cancel()

    def cancel_all(self, outcome: Callable[[], Exception]) -> None:
        """End all that wait for a job, now and from now on. Each gets an outcome of its own."""
        self._refusal = outcome
        for job in self._wanted:
            if job.future.cancel():
                job.outcome = outcome()

    def stop(self) -> None:
        """Let the threads finish their jobs, and end."""
        self._pool.shutdown(wait=False, cancel_futures=True)

    def _run(self, job: _Job, pool: ThreadPoolExecutor) -> Any:
        """Do a job in a thread of `pool`, unless it has moved to another pool."""
        with self._lock:
            if job.has_moved or pool is not self._pool:
                return None
            job.begun = time.monotonic()
            self._running.add(job)
        try:
            return self._do(job)
        finally:
            with self._lock:
                self._running.discard(job)
                self._strays.discard(job)

    def _do(self, job: _Job) -> Any:
        return job.do()


def _nothing() -> None:
    """What is left of a job that nobody waits for."""
