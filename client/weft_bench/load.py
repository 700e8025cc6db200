"""Runs a load: sends when it is time to, counts from when it should have been sent, and waits for what it sent."""

import asyncio
import time
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager, suppress
from dataclasses import dataclass, field
from itertools import count, cycle
from random import Random
from typing import Protocol

from weft_bench.arrivals import Arrivals, Closed, Open
from weft_bench.asking import Asked
from weft_bench.record import Outcome, Record

# A caller of a closed loop that was refused waits before it asks again.
# It waits as long as the server says, or PAUSE_S. It waits at most MAX_PAUSE_S, however long the server says.
PAUSE_S = 0.1
MAX_PAUSE_S = 1.0
# Seconds between two looks of the generator at its own lateness.
LAG_PERIOD_S = 0.02
# A call is cancelled within a usual answer. Until one has come, that is taken to have this many messages, or seconds.
FIRST_MESSAGES = 8
FIRST_SECONDS = 0.1


@dataclass(frozen=True, slots=True)
class Plan:
    """How long a load goes on, in seconds or in requests that count, whichever is over first, and what is cancelled."""

    warmup_s: float = 0.0
    duration_s: float | None = None
    num_requests: int | None = None
    cancel_fraction: float = 0.0
    seed: int = 0


@dataclass(slots=True)
class Run:
    """A load as it goes on. Requests due before `start` warm up and do not count; at `finished` the last has ended.

    `streams` is whether answers come in messages, whose times are of interest.
    """

    arrivals: Arrivals
    plan: Plan
    streams: bool = False
    start: float = 0.0
    finished: float = 0.0
    records: list[Record] = field(default_factory=list)
    lags: list[float] = field(default_factory=list)
    cpu_share: float = 0.0
    interrupted: bool = False
    num_ended: dict[Outcome, int] = field(default_factory=lambda: dict.fromkeys(Outcome, 0))
    num_tokens: int = 0
    num_counted: int = 0
    e2e_sum: float = 0.0
    message_sum: int = 0

    @property
    def num_running(self) -> int:
        """How many requests were sent and have not ended."""
        return len(self.records) - sum(self.num_ended.values())

    def is_over(self, due: float) -> bool:
        """Tell whether a request that is due then is one too many."""
        plan = self.plan
        over = plan.duration_s is not None and due >= self.start + plan.duration_s
        return over or (plan.num_requests is not None and self.num_counted >= plan.num_requests)

    def begin(self, due: float) -> Record:
        """Write a new record."""
        record = Record(due)
        self.records.append(record)
        self.num_counted += due >= self.start
        return record

    def end(self, record: Record) -> None:
        """Count a request that has ended."""
        self.num_ended[record.outcome] += 1
        self.finished = max(self.finished, record.ended)
        if record.outcome is Outcome.COMPLETED:
            self.num_tokens += record.output_tokens
            self.e2e_sum += record.e2e
            self.message_sum += record.num_deltas


class Caller(Protocol):
    """Calls one method of a server."""

    async def call(self, asked: Asked, record: Record, cancel_after: float | None) -> None:
        """Send a request and fill in its record.

        `cancel_after` is None, or for a stream the messages and for a unary call the seconds after which to cancel it.
        """


class Load:
    """One run of requests against a server; `run` can be looked at while it goes on."""

    def __init__(self, arrivals: Arrivals, plan: Plan, requests: list[Asked], *, streams: bool) -> None:
        self.run = Run(arrivals, plan, streams)
        self._requests = cycle(requests)
        # Streams of chance of their own: the same requests are cancelled whatever the arrivals are.
        self._when = Random(f"arrivals {plan.seed}")  # noqa: S311 - a load, not a secret
        self._whether = Random(f"cancels {plan.seed}")  # noqa: S311 - same

    async def measure(self, calling: AbstractAsyncContextManager[Caller], watch: Callable[[Run], None]) -> Run:
        """Send until the plan is done and all answers are there, or until Ctrl-C.

        `calling` connects. `watch` is called some times a second. A server that does not answer costs each request the
        timeout, no more.
        """
        run = self.run
        async with calling as caller:
            began, cpu = time.monotonic(), time.process_time()
            run.start = began + run.plan.warmup_s
            watcher = asyncio.create_task(_watch(run, watch))
            try:
                async with asyncio.TaskGroup() as tasks:
                    await self._send(caller, tasks, began)
            except asyncio.CancelledError:  # Ctrl-C: what has been measured is worth a report
                run.interrupted = True
            finally:
                now = time.monotonic()
                if run.interrupted:
                    run.finished = now
                if run.records:
                    run.cpu_share = (time.process_time() - cpu) / (now - began)
                watcher.cancel()
                with suppress(asyncio.CancelledError):
                    await watcher
        return run

    async def _send(self, caller: Caller, tasks: asyncio.TaskGroup, began: float) -> None:
        match self.run.arrivals:
            case Closed(concurrency, pauses):
                for _ in range(concurrency):
                    tasks.create_task(self._ask_in_turn(caller, pauses=pauses))
            case Open() as arrivals:
                await self._ask_on_time(caller, tasks, arrivals, began)

    async def _ask_in_turn(self, caller: Caller, *, pauses: bool) -> None:
        """One caller of a closed loop."""
        run = self.run
        while not run.is_over(now := time.monotonic()):
            record = run.begin(now)
            await self._ask(caller, record)
            if record.error is not None:
                pause = record.error.retry_after
                await asyncio.sleep(PAUSE_S if pause is None else min(pause, MAX_PAUSE_S))
            elif pauses and record.e2e > 0:
                await asyncio.sleep(self._when.expovariate(1 / record.e2e))

    async def _ask_on_time(self, caller: Caller, tasks: asyncio.TaskGroup, arrivals: Open, began: float) -> None:
        """Send each request when it is due, or at once when that is past."""
        run = self.run
        for offset in arrivals.due(self._when):
            due = began + offset
            if run.is_over(due):
                return
            if (early := due - time.monotonic()) > 0:
                await asyncio.sleep(early)
            tasks.create_task(self._ask(caller, run.begin(due)))

    async def _ask(self, caller: Caller, record: Record) -> None:
        asked = next(self._requests)
        await caller.call(asked, record, self._cancel_after(asked))
        self.run.end(record)

    def _cancel_after(self, asked: Asked) -> float | None:
        """Draw whether and when to cancel: a message of the stream, or a moment of the time that a call takes."""
        is_cancelled = self._whether.random() < self.run.plan.cancel_fraction
        share = self._whether.random()
        if not is_cancelled:
            return None
        run = self.run
        completed = run.num_ended[Outcome.COMPLETED]
        if not run.streams:
            return share * (run.e2e_sum / completed if completed else FIRST_SECONDS)
        usual = run.message_sum / completed if completed else FIRST_MESSAGES
        # A message may hold several tokens, the more the busier the server is.
        messages = asked.num_new_tokens * min(1.0, run.message_sum / run.num_tokens if run.num_tokens else 1.0)
        return 1 + int(share * (messages or usual))


async def _watch(run: Run, watch: Callable[[Run], None]) -> None:
    """Note how late this task is woken: so late the generator sees what has come, and sends."""
    for turn in count():
        due = time.monotonic() + LAG_PERIOD_S
        await asyncio.sleep(LAG_PERIOD_S)
        run.lags.append(time.monotonic() - due)
        if turn % 10 == 0:
            watch(run)
