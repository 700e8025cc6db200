"""A lane's place in its engine: the lane that is there now, its thread, and its signs of life."""

from __future__ import annotations

import time
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import threading

    from weft_server.engine.lane import Lane


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
