"""One model's engine: a bounded waiting room in front of lanes, each lane a thread that steps."""

from __future__ import annotations

import math
import threading
import time
from typing import TYPE_CHECKING

import structlog

from weft_server.errors import DeadlineExpired
from weft_server.sequence import ANYBODY, Cancelled, Delivery, EngineStats, FinishReason, StepFailed

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Callable

    from weft_server.engine.lane import Lane, Take
    from weft_server.engine.scheduler import Scheduler
    from weft_server.sequence import Outcome, Sequence, Standing
    from weft_server.telemetry.metrics import ModelMetrics

_log = structlog.get_logger(__name__)
# An idle lane wakes this often to show that it lives.
HEARTBEAT_S = 1.0
# An idle lane does not begin at the first request that comes. It waits for those that come together with it, so that
# one step takes them all. The wait is counted in turns of the event loop since the last request came:
# 1. GATHER_TURNS for each request that is here: where many are, more come. For a lone one these take 0.1 ms.
# 2. At most MAX_GATHER_TURNS.
# 3. However many come, the wait ends GATHER_S seconds after the first.
GATHER_TURNS = 8
MAX_GATHER_TURNS = 64
GATHER_S = 0.006
FAILED_STEP_PAUSE_S = 1.0


class Engine:
    """Takes sequences, and ends each exactly once. Public methods are for the event loop's thread."""

    def __init__(
        self,
        scheduler: Scheduler,
        lanes: list[Lane],
        metrics: ModelMetrics,
        loop: asyncio.AbstractEventLoop,
    ) -> None:
        self._scheduler = scheduler
        self._lanes = lanes
        self._metrics = metrics
        self._loop = loop
        # Guards scheduler, _live, _refusal and _stopping. It is held for list work only, never over a model run.
        self._lock = threading.Lock()
        self._wake = threading.Condition(self._lock)
        self._live: set[Sequence] = set()
        self._refusal: Callable[[], Exception] | None = None
        self._stopping = False
        self._beats = [time.monotonic()] * len(lanes)
        # Whether a call of `_gather` is on its way, and how many turns it still waits.
        self._gathering = False
        self._turns = 0
        self._threads = [
            threading.Thread(target=self._run, args=(index,), name=f"lane-{index}", daemon=True)
            for index in range(len(lanes))
        ]

    def start(self) -> None:
        """Start the lanes' threads."""
        for thread in self._threads:
            thread.start()

    @property
    def max_queued(self) -> int:
        """How many requests may wait."""
        return self._scheduler.bounds.max_requests

    def check_open(self, standing: Standing = ANYBODY) -> None:
        """Raise Overloaded when a bound of the waiting room is reached. Who is let in may be promised a place."""
        with self._lock:
            self._scheduler.check_open(standing)

    def reserve(self, standing: Standing = ANYBODY, count: int = 1, deadline: float = math.inf) -> None:
        """Take places in the waiting room, all or none, before their sequences are made. Raises Overloaded."""
        with self._lock:
            self._scheduler.reserve(standing, count, deadline, time.monotonic())

    def release(self, standing: Standing = ANYBODY, count: int = 1) -> None:
        """Give reserved places back that no sequences were submitted for."""
        with self._lock:
            self._scheduler.release(standing, count)

    def submit(self, *sequences: Sequence, is_promised: bool = False) -> None:
        """Turn reserved places into waiting sequences, all or none. If this raises, the places stay reserved.

        Sequences that were promised to wait, `is_promised`, need no places and have no bound.

        Raises:
            Overloaded: the token bound is reached.
            Exception: cancel_all was called before. This is its outcome.
        """
        with self._lock:
            if self._refusal is not None:
                raise self._refusal()
            self._scheduler.enqueue(*sequences, is_promised=is_promised, now=time.monotonic())
            self._live.update(sequences)
        # A lane that woke at the first request would fight the event loop for the interpreter, and run a single row.
        self._turns = min(GATHER_TURNS * len(self._live), MAX_GATHER_TURNS)
        if not self._gathering:
            self._gathering = True
            self._loop.call_soon(self._gather, time.monotonic() + GATHER_S)

    def _gather(self, until: float) -> None:
        """Wake idle lanes some turns after the last request that came."""
        if self._turns and time.monotonic() < until:
            self._turns -= 1
            self._loop.call_soon(self._gather, until)
            return
        self._gathering = False
        with self._lock:
            # Idle lanes hold nothing, so any of them may take what waits. Busy lanes look for themselves after each
            # step.
            self._wake.notify(len(self._scheduler.waiting))

    def cancel(self, sequence: Sequence, outcome: Outcome | None = None) -> None:
        """End a sequence with `outcome`, by default Cancelled.

        A sequence that waits ends now. Any other ends before the next step of its lane.
        """
        if sequence.reply.outcome is not None:
            return
        outcome = outcome or Cancelled()
        with self._lock:
            if self._scheduler.remove(sequence):
                self._finish(sequence, outcome)
                sequence.reply.put([], [], outcome)
            elif sequence in self._live:
                assert sequence.lane is not None
                self._lanes[sequence.lane].gone.append((sequence, outcome))
                self._wake.notify_all()

    def cancel_all(self, outcome: Callable[[], Exception]) -> None:
        """End everything, now and from now on. Each sequence gets an outcome of its own.

        A running sequence ends before the next step of its lane.
        """
        with self._lock:
            self._refusal = outcome
            live = list(self._live)
        for sequence in live:
            self.cancel(sequence, outcome())

    def stop(self, timeout: float) -> bool:
        """Let the lanes finish their step and end. Returns whether all did within `timeout` seconds.

        Sequences that are still there get no answer. Cancel them before.
        """
        with self._lock:
            self._stopping = True
            self._wake.notify_all()
        give_up = time.monotonic() + timeout
        for thread in self._threads:
            thread.join(max(0.0, give_up - time.monotonic()))
        return not any(thread.is_alive() for thread in self._threads)

    @property
    def last_beat(self) -> float:
        """Monotonic seconds of the slowest lane's last sign of life: the end of a step, or a heartbeat while idle."""
        return min(self._beats)

    def stats(self) -> EngineStats:
        """A snapshot for gauges and probes."""
        with self._lock:
            waiting, now = self._scheduler.waiting, time.monotonic()
            held = [lane.usage() for lane in self._lanes]
            return EngineStats(
                queued=self._scheduler.num_queued,
                queued_tokens=self._scheduler.queued_tokens,
                oldest_queued_s=max(0.0, now - waiting.oldest),
                running=len(self._live) - len(waiting),
                slots_used=sum(usage.slots_used for usage in held),
                slots_total=sum(usage.slots_total for usage in held),
                kv_used=sum(usage.kv_used for usage in held),
                kv_total=sum(usage.kv_total for usage in held),
                last_step_time=self.last_beat,
            )

    def _run(self, index: int) -> None:
        """The life of a lane's thread: wait for work, step, hand over."""
        lane = self._lanes[index]
        take = self._take_for(index)
        while self._wait_for_work(index, lane):
            try:
                deliveries = lane.step(take)
            except Exception as error:  # noqa: BLE001 - whatever it is, it ends these sequences and not the lane
                _log.exception("step failed", lane=index)
                deliveries = self._fail(index, error)
                if not deliveries:
                    time.sleep(FAILED_STEP_PAUSE_S)  # nobody ended: the same step would fail again at once
            self._beats[index] = time.monotonic()
            self._note_open(index, is_open=lane.is_open())
            self._hand_over(deliveries)

    def _fail(self, index: int, error: Exception) -> list[Delivery]:
        """End all that a lane has, also what its step took or ended and then lost when it failed."""
        deliveries = self._lanes[index].fail(error)
        with self._lock:
            named = {delivery.sequence for delivery in deliveries if delivery.outcome is not None}
            lost = [sequence for sequence in self._live if sequence.lane == index and sequence not in named]
            num_held = self._scheduler.loads[index] - sum(delivery.num_freed for delivery in deliveries)
        for num_left, sequence in zip(range(len(lost) - 1, -1, -1), lost, strict=True):
            # The lane is empty now, so they held the rest together.
            num_freed = num_held - num_left
            num_held = num_left
            deliveries.append(Delivery(sequence, [], [], StepFailed(error), num_freed=num_freed))
        return deliveries

    def _take_for(self, index: int) -> Take:
        """The waiting room as a lane asks it."""

        def take(
            *, most: int, budget: int, room: int | None = None, least: int = 1, alike: bool = False
        ) -> list[Sequence]:
            now = time.monotonic()
            with self._lock:
                taken = self._scheduler.take(
                    index, most=most, budget=budget, room=room, least=least, alike=alike, now=now
                )
                late = self._end_late()
            if late:
                self._loop.call_soon_threadsafe(_deliver, late)
            for sequence in taken:
                sequence.times.admitted = now
                self._metrics.queue_time.observe(now - sequence.times.accepted)
            return taken

        return take

    def _end_late(self) -> list[Delivery]:
        """End those whose deadline has passed while they waited. Holds the lock."""
        late = [Delivery(sequence, [], [], DeadlineExpired()) for sequence in self._scheduler.late]
        self._scheduler.late.clear()
        for delivery in late:
            assert delivery.outcome is not None
            self._finish(delivery.sequence, delivery.outcome)
        return late

    def _note_open(self, index: int, *, is_open: bool) -> None:
        """Note whether other lanes leave waiting sequences to this one. Only this lane changes its own entry."""
        closed = self._scheduler.closed
        if is_open == (index in closed):
            with self._lock:
                (closed.discard if is_open else closed.add)(index)

    def _wait_for_work(self, index: int, lane: Lane) -> bool:
        """Block while there is nothing to do. Returns False when the engine stops."""
        with self._lock:
            while not self._stopping:
                if lane.is_busy or (lane.has_room() and self._scheduler.may_take(index)):
                    return True
                self._wake.wait(HEARTBEAT_S)
                self._beats[index] = time.monotonic()
        return False

    def _hand_over(self, deliveries: list[Delivery]) -> None:
        if not deliveries:
            return
        leaving = [delivery for delivery in deliveries if delivery.num_freed]
        if leaving:
            with self._lock:
                for delivery in leaving:
                    self._scheduler.free(self._lane_of(delivery.sequence), delivery.num_freed)
                    if delivery.outcome is not None:
                        self._finish(delivery.sequence, delivery.outcome)
        self._loop.call_soon_threadsafe(_deliver, deliveries)

    def _lane_of(self, sequence: Sequence) -> int:
        assert sequence.lane is not None
        return sequence.lane

    def _finish(self, sequence: Sequence, outcome: Outcome) -> None:
        """Count a sequence's end. Holds the lock."""
        assert sequence in self._live, f"{sequence.request_id} ended twice. This is a bug."
        self._live.remove(sequence)
        self._scheduler.settle(sequence)
        sequence.times.finished = time.monotonic()
        self._metrics.observe_sequence(sequence)
        if not isinstance(outcome, FinishReason):
            self._metrics.wasted_tokens.inc(sequence.num_output_tokens)
            if isinstance(outcome, Cancelled) and not sequence.is_counted:
                self._metrics.cancelled(sequence.stage)

    def __repr__(self) -> str:
        return f"<Engine {self._scheduler!r} {self._lanes!r}>"


def _deliver(deliveries: list[Delivery]) -> None:
    for delivery in deliveries:
        reply = delivery.sequence.reply
        reply.put(
            delivery.token_ids,
            delivery.log_probs,
            delivery.outcome,
            delivery.probabilities,
            delivery.outputs,
            delivery.tops,
        )
