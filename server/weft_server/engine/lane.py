"""What the engine asks of a lane, how a lane asks for who waits, and a lane's place in its engine."""

from __future__ import annotations

import time
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    import threading
    from collections import deque
    from collections.abc import Callable, Iterator

    from weft_server.engine.run_shapes import RunShapes
    from weft_server.sequence import Delivery, Outcome, Sequence
    from weft_server.telemetry.engine_stats import Usage


@dataclass(frozen=True, slots=True)
class Intake:
    """What a lane takes from the queue at once: at most `most` sequences, of `budget` padded input tokens together.

    Together they are no wider than `room`, the lane's free slots. Without it, each takes one of `most` places. Of one
    that has slots, `fits` says whether the lane has all else that it needs now. If not, it stays the first. The first
    one may cost more than the budget. Otherwise a sequence that is too long for it would wait forever.

    There are two cases:

    1. `shapes` are given: a batch, with bounds of their own. The first sequence, and those alike in their order.
    2. Otherwise: in their order. The lane takes its even share of what it holds, what open lanes hold, and what waits.
       It takes `least` in a row at least, so that they stay together. If it could take fewer, it takes none. A stream
       or a long input among the first ones is an exception: it gains nothing by company, so they are taken.
    """

    most: int
    budget: int
    room: int | None = None
    least: int = 1
    shapes: RunShapes | None = None
    fits: Callable[[Sequence], bool] | None = None


class Take(Protocol):
    """The queue as one lane sees it. What is taken belongs to the lane."""

    def __call__(self, intake: Intake, /) -> list[Sequence]:
        """Sequences that waited."""


class Lane(Protocol):
    """One thread's work; see DecodeLane and ClassifyLane."""

    # Sequences to drop before the next step, with their outcome. Any thread appends.
    gone: deque[tuple[Sequence, Outcome]]

    def first_runs(self) -> Iterator[None]:
        """Run what has to be run in the lane's own thread before its first request, a run a turn.

        That is nothing on the host, where no thread keeps what a run leaves. It is each shape on a device.
        """

    @property
    def is_busy(self) -> bool:
        """Whether a step has something to do even if nothing waits."""

    def has_room(self) -> bool:
        """Whether a waiting sequence could be taken now."""

    def is_open(self) -> bool:
        """Whether it takes waiting sequences within some steps."""

    def usage(self) -> Usage:
        """What is held."""

    def step(self, take: Take) -> list[Delivery]:
        """Take what waits, run, and say what there is to hand over."""

    def fail(self, outcome: Callable[[], Exception]) -> list[Delivery]:
        """End everything after a failed step, each sequence with an outcome of its own. The lane is not used again."""


@dataclass(slots=True, eq=False)
class LaneThread:
    """One thread of an engine, and its lane. The engine's lock guards all but `beat`.

    There are two ways in which a lane fails:

    1. A step raises. The thread drops the lane, and makes a new one in the same place.
    2. A step does not end. A thread cannot be stopped, so it is given up as it is. Another one takes its place.
    """

    index: int
    # None while a new one is being made.
    lane: Lane | None
    thread: threading.Thread | None = None
    # Ends when the first lane is warm, or with what its warm-up raised.
    warm: Future[None] = field(default_factory=Future)
    # Monotonic seconds of the last sign of life: the end of a step, or a heartbeat while idle.
    beat: float = field(default_factory=time.monotonic)
    # Whether a step, or the making of a lane, is under way.
    is_busy: bool = False
    # Nothing that the thread still does is of any effect.
    is_given_up: bool = False

    def is_stuck(self, timeout_s: float) -> bool:
        """Whether what is under way takes longer than it may."""
        works = self.is_busy and not self.is_given_up and self.thread is not None and self.thread.is_alive()
        return works and time.monotonic() - self.beat > timeout_s

    @property
    def has_died(self) -> bool:
        """Whether its thread has begun and ended. For an engine that goes on there is no good reason."""
        return self.thread is not None and not self.thread.is_alive()
