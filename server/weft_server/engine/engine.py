"""One model's engine: a bounded queue in front of lanes, each lane a thread that steps."""

from __future__ import annotations

import math
import threading
import time
from typing import TYPE_CHECKING

from weft_server.engine.batch_window import BatchWindow
from weft_server.engine.failure import OUT_OF_MEMORY, Failure, stack_of
from weft_server.engine.lane import LaneThread
from weft_server.engine.live_sequences import LiveSequences
from weft_server.sequence import ANYBODY, Cancelled
from weft_server.telemetry.engine_stats import EngineStats, added

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Callable
    from concurrent.futures import Future

    from weft_server.engine.failure import FailureBudget
    from weft_server.engine.lane import Intake, Lane, Take
    from weft_server.engine.scheduler import Scheduler
    from weft_server.sequence import Delivery, Outcome, Sequence, Standing
    from weft_server.telemetry.model_metrics import ModelMetrics

# An idle lane wakes this often to show that it lives.
HEARTBEAT_S = 1.0
# A step that failed and ended nobody would fail again at once. So would the making of a lane.
FAILED_STEP_PAUSE_S = 1.0


class Engine:
    """Takes sequences, and ends each exactly once. Public methods are for the event loop's thread."""

    def __init__(
        self,
        scheduler: Scheduler,
        lanes: list[Lane],
        metrics: ModelMetrics,
        loop: asyncio.AbstractEventLoop,
        *,
        make_lane: Callable[[int], Lane],
        failure_budget: FailureBudget,
    ) -> None:
        """`make_lane` makes the lane of an index anew, in a lane's thread."""
        self._scheduler = scheduler
        self._make_lane = make_lane
        self._failure_budget = failure_budget
        self._metrics = metrics
        self._loop = loop
        # Guards scheduler, sequences, threads, _refusal and _stopping. It is held for list work only, never over a run.
        self.lock = threading.Lock()
        self._wake = threading.Condition(self.lock)
        self._live_sequences = LiveSequences(scheduler, metrics)
        self._refusal: Callable[[], Exception] | None = None
        self._stopping = False
        self._batch_window = BatchWindow(loop)
        self._lane_threads = [LaneThread(index, lane) for index, lane in enumerate(lanes)]
        # Those that were given up.
        self._strays: list[threading.Thread] = []
        # Lanes that wait for work.
        self.num_idle = 0

    def start(self) -> list[Future[None]]:
        """Start the lanes' threads. Returns what ends when each has warmed its lane, or with what that raised."""
        for owner in self._lane_threads:
            self._start(owner)
        return [owner.warm for owner in self._lane_threads]

    def _start(self, owner: LaneThread) -> None:
        owner.thread = threading.Thread(target=self._run, args=(owner,), name=f"lane-{owner.index}", daemon=True)
        owner.thread.start()

    @property
    def num_stuck(self) -> int:
        """Lanes' threads that were given up, and hung still at the last look."""
        return len(self._strays)

    @property
    def lanes(self) -> list[Lane]:
        """Those that are there now. One that failed is missing until another one has taken its place."""
        return [owner.lane for owner in self._lane_threads if owner.lane]

    def max_queued(self, standing: Standing = ANYBODY) -> int:
        """How many requests of one caller may wait together."""
        return self._scheduler.bounds.most_for(standing)

    def check_open(self, standing: Standing = ANYBODY) -> None:
        """Raise Overloaded when a bound of the queue is reached. Who is let in may be promised a place."""
        with self.lock:
            self._scheduler.check_open(standing)

    def reserve(self, standing: Standing = ANYBODY, count: int = 1, deadline: float = math.inf) -> None:
        """Take places in the queue, all or none, before their sequences are made. Raises Overloaded."""
        with self.lock:
            self._scheduler.reserve(standing, count, deadline, time.monotonic())

    def check_tokens(self, num_tokens: int) -> None:
        """Raise Overloaded where so many tokens more may not wait, before anything is computed for them."""
        with self.lock:
            self._scheduler.check_tokens(num_tokens)

    def release(self, standing: Standing = ANYBODY, count: int = 1) -> None:
        """Give reserved places back that no sequences were submitted for."""
        with self.lock:
            self._scheduler.release(standing, count)

    def submit(self, *sequences: Sequence, is_promised: bool = False) -> None:
        """Turn reserved places into waiting sequences, all or none. If this raises, the places stay reserved.

        Sequences that were promised to wait, `is_promised`, need no places and have no bound.

        Raises:
            Overloaded: the bound of tokens, or that of bytes, is reached.
            Exception: cancel_all was called before. This is its outcome.
        """
        with self.lock:
            if self._refusal is not None:
                raise self._refusal()
            self._live_sequences.enter(sequences, is_promised=is_promised)
            if not self.num_idle:
                return  # Busy lanes look for themselves after each step.
        self._batch_window.note(len(self._live_sequences.live), self._wake_idle)

    def _wake_idle(self) -> None:
        """Wake as many lanes as requests wait. Idle lanes hold nothing, so any of them may take what waits."""
        with self.lock:
            self._wake.notify(len(self._scheduler.waiting))

    def cancel(self, sequence: Sequence, outcome: Outcome | None = None) -> None:
        """End a sequence with `outcome`, by default Cancelled.

        A sequence that waits ends now. Any other ends before the next step of its lane.
        """
        if sequence.reply.outcome is not None:
            return
        outcome = outcome or Cancelled()
        with self.lock:
            if self._scheduler.remove(sequence):
                self._live_sequences.end(sequence, outcome)
                sequence.reply.put([], [], outcome)
            elif sequence in self._live_sequences.live:
                self._lane_of(sequence).gone.append((sequence, outcome))
                self._wake.notify_all()

    def cancel_all(self, outcome: Callable[[], Exception]) -> None:
        """End everything, now and from now on. Each sequence gets an outcome of its own.

        Callers hear it at once: a lane may be in a long step, or hang. It drops its sequences before the next step.
        """
        with self.lock:
            self._refusal = outcome
            live = list(self._live_sequences.live)
        for sequence in live:
            end = outcome()
            self.cancel(sequence, end)
            sequence.reply.put([], [], end)

    def stop(self, timeout: float) -> bool:
        """Let the lanes finish their step and end. Returns whether all did within `timeout` seconds.

        Sequences that are still there get no answer. Cancel them before. Lanes that were given up count too.
        """
        with self.lock:
            self._stopping = True
            self._wake.notify_all()
        give_up = time.monotonic() + timeout
        threads = [*self._strays, *(owner.thread for owner in self._lane_threads if owner.thread)]
        for thread in threads:
            thread.join(max(0.0, give_up - time.monotonic()))
        return not any(thread.is_alive() for thread in threads)

    def supervise(self, timeout_s: float) -> None:
        """Give up lanes whose step takes longer than `timeout_s` seconds. Their requests end, others take their place.

        A thread cannot be stopped. What it does from now on has no effect. Those that hang still, however long ago they
        were given up, may be as many as may fail: each holds a lane's memory.
        """
        self._strays = [thread for thread in self._strays if thread.is_alive()]
        for owner in list(self._lane_threads):
            if owner.is_stuck(timeout_s):
                self._replace(owner, Failure("LANE_STUCK", f"a step did not end within {timeout_s:g} s"), timeout_s)
            elif owner.has_died and not (self._stopping or self._failure_budget.is_spent):
                self._replace(owner, Failure("STEP_FAILED", "its thread has ended"))
        if len(self._strays) > self._failure_budget.most:
            self._failure_budget.exhaust()
        for owner in self._lane_threads:
            if owner.thread is None and not (self._stopping or self._failure_budget.is_spent):
                self._start_again(owner)

    def _replace(self, owner: LaneThread, failure: Failure, timeout_s: float | None = None) -> None:
        """Give a lane's thread up, for good, and put another one in its place that has no thread yet."""
        with self.lock:
            if timeout_s is not None and not owner.is_stuck(timeout_s):
                return  # it has just ended
            owner.is_given_up = True
            ended = self._live_sequences.vacate(owner.index, failure, [])
            self._wake.notify_all()
            self._lane_threads[owner.index] = LaneThread(owner.index, None, is_busy=True)
        assert owner.thread is not None, "a lane has failed that was not started. This is a bug."
        self._strays.append(owner.thread)
        failure.note(self._metrics, lane=owner.index, stack=stack_of(owner.thread))
        _deliver(ended)
        self._failure_budget.spend()

    def _start_again(self, owner: LaneThread) -> None:
        """Start the lane's thread that has not begun. If there can be none now, the next look tries again."""
        try:
            self._start(owner)
        except RuntimeError as error:  # as many threads as the system allows
            owner.thread = None
            Failure.of(error).note(self._metrics, lane=owner.index)
            self._failure_budget.spend()

    @property
    def last_beat(self) -> float:
        """Monotonic seconds of the slowest lane's last sign of life: the end of a step, or a heartbeat while idle."""
        return min(owner.beat for owner in self._lane_threads)

    def stats(self) -> EngineStats:
        """A snapshot for gauges and probes."""
        with self.lock:
            waiting, now = self._scheduler.waiting, time.monotonic()
            return EngineStats(
                queued=self._scheduler.num_queued,
                queued_tokens=self._scheduler.queued_tokens,
                oldest_queued_s=max(0.0, now - waiting.oldest),
                running=len(self._live_sequences.live) - len(waiting),
                held=added(lane.usage() for lane in self.lanes),
                last_step_time=self.last_beat,
                restarts_left=self._failure_budget.num_left,
            )

    def _run(self, owner: LaneThread) -> None:
        """The life of a lane's thread: warm it, wait for work, step, hand over. If the lane fails, make another one."""
        take = self._take_for(owner)
        if owner.lane and not self._begin(owner, owner.lane):
            return
        while (owner.lane or self._remake(owner)) and self._wait_for_work(owner):
            try:
                self._step(owner, take)
            except Exception as error:  # noqa: BLE001 - whatever it is, it ends these sequences and not the thread
                is_paused = not self._fail(owner, Failure.of(error))
                # Its frames hold the lane's memory.
                error.__traceback__ = None
                if is_paused:
                    time.sleep(FAILED_STEP_PAUSE_S)
        if owner.is_given_up and owner.lane:
            owner.lane.fail(Cancelled)  # they have ended, and what goes on for them ends here

    def _begin(self, owner: LaneThread, lane: Lane) -> bool:
        """Warm a thread's first lane. Who started the engine hears how that went. Returns whether it went well."""
        if not owner.warm.set_running_or_notify_cancel():
            return False
        try:
            self._warm(owner, lane)
        except Exception as error:  # noqa: BLE001 - whatever it is, the model is refused with it
            owner.warm.set_exception(error)
            return False
        owner.warm.set_result(None)
        return True

    def _warm(self, owner: LaneThread, lane: Lane) -> None:
        """Warm a lane in its thread. Each run is a sign of life."""
        for _ in lane.first_runs():
            owner.beat = time.monotonic()
            if self._stopping or owner.is_given_up:
                return

    def _step(self, owner: LaneThread, take: Take) -> None:
        assert owner.lane is not None, f"lane thread {owner.index} has no lane. This is a bug."
        deliveries = owner.lane.step(take)
        owner.beat = time.monotonic()
        self._note_open(owner, is_open=owner.lane.is_open())
        self._hand_over(owner, deliveries)

    def _fail(self, owner: LaneThread, failure: Failure) -> bool:
        """Drop its lane, and end all that it has, also what its step took and then lost. Returns whether any was.

        Nothing of the lane is used again: nobody knows what the step has left in its memory.
        """
        deliveries = failure.ends_of(owner.lane)
        with self.lock:
            if owner.is_given_up:
                return True  # which has been counted
            ended = self._live_sequences.vacate(owner.index, failure, deliveries)
            self._wake.notify_all()
            owner.lane = None
            owner.beat = time.monotonic()  # the step has ended: it is not stuck too
        self._note(owner, failure)
        self._loop.call_soon_threadsafe(_deliver, ended)
        return bool(ended)

    def _note(self, owner: LaneThread, failure: Failure) -> None:
        """Count a failure in a lane's own thread. Too much load is none of the lane's."""
        failure.note(self._metrics, lane=owner.index)
        if failure.reason != OUT_OF_MEMORY:
            self._failure_budget.spend()

    def _remake(self, owner: LaneThread) -> bool:
        """Make a lane for a thread whose lane has failed. Returns False when the engine stops, or too many have."""
        with self.lock:
            owner.is_busy = True
        while not (self._stopping or owner.is_given_up or self._failure_budget.is_spent):
            owner.beat = time.monotonic()
            try:
                lane = self._made(owner)
            except Exception as error:  # noqa: BLE001 - memory may be short for a while
                if owner.is_given_up:
                    return False
                Failure.of(error).note(self._metrics, lane=owner.index)
                # Whatever it is: a lane that can never be made again must not look alive for ever.
                self._failure_budget.spend()
                time.sleep(FAILED_STEP_PAUSE_S)
                continue
            with self.lock:
                owner.lane = lane
                if not owner.is_given_up:
                    self._scheduler.closed.discard(owner.index)
            return True
        return False

    def _made(self, owner: LaneThread) -> Lane:
        self._warm(owner, lane := self._make_lane(owner.index))
        return lane

    def _take_for(self, owner: LaneThread) -> Take:
        """The queue as a lane asks it."""

        def take(intake: Intake) -> list[Sequence]:
            if not self._scheduler.waiting:
                return []  # as mostly, and without the lock: who comes just now waits for the next step
            with self.lock:
                # Read here: who came while this lane waited for the lock is not admitted before that.
                now = time.monotonic()
                if owner.is_given_up:
                    return []
                taken = self._scheduler.take(owner.index, intake, now)
                late = self._live_sequences.end_late()
            if late:
                self._loop.call_soon_threadsafe(_deliver, late)
            for sequence in taken:
                sequence.times.admitted = now
                if not sequence.is_counted:
                    self._metrics.queue_time.observe(now - sequence.times.accepted)
            return taken

        return take

    def _note_open(self, owner: LaneThread, *, is_open: bool) -> None:
        """Note whether other lanes leave waiting sequences to this one. Only this lane changes its own entry."""
        closed = self._scheduler.closed
        if is_open == (owner.index in closed):
            with self.lock:
                if not owner.is_given_up:
                    (closed.discard if is_open else closed.add)(owner.index)

    def _wait_for_work(self, owner: LaneThread) -> bool:
        """Block while there is nothing to do. Returns False when the engine stops."""
        with self.lock:
            while owner.lane and not (self._stopping or owner.is_given_up):
                owner.beat = time.monotonic()
                owner.is_busy = owner.lane.is_busy or (owner.lane.has_room() and self._scheduler.may_take(owner.index))
                if owner.is_busy:
                    return True
                self.num_idle += 1
                self._wake.wait(HEARTBEAT_S)
                self.num_idle -= 1
        return False

    def _hand_over(self, owner: LaneThread, deliveries: list[Delivery]) -> None:
        """Count what has ended, and bring each its part. To those of a lane that was given up it is of no effect."""
        if not deliveries:
            return
        try:
            if leaving := [delivery for delivery in deliveries if delivery.num_freed]:
                with self.lock:
                    if not owner.is_given_up:
                        self._live_sequences.free(owner.index, leaving)
        finally:
            # Also if counting fails: the answers are there, and nobody else brings them.
            self._loop.call_soon_threadsafe(_deliver, deliveries)

    def _lane_of(self, sequence: Sequence) -> Lane:
        """The lane that a live sequence is in. Holds the lock."""
        assert sequence.lane is not None
        lane = self._lane_threads[sequence.lane].lane
        assert lane is not None, f"{sequence.request_id} is in a lane that is gone. This is a bug."
        return lane

    def __repr__(self) -> str:
        return f"<Engine {self._scheduler!r} {self.lanes!r}>"


def _deliver(deliveries: list[Delivery]) -> None:
    for delivery in deliveries:
        delivery.put()
