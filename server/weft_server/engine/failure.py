"""Why a lane or a worker failed: what its requests are told, how it is counted; and how many may still fail."""

from __future__ import annotations

import secrets
import sys
import threading
import time
import traceback
from collections import deque
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import structlog

from weft_proto.first_line import first_line
from weft_server.errors import LaneFailed, Overloaded
from weft_server.runtime.session import is_out_of_memory

if TYPE_CHECKING:
    from weft_server.engine.lane import Lane
    from weft_server.errors import RequestError
    from weft_server.sequence import Delivery
    from weft_server.telemetry.model_metrics import ModelMetrics

_log = structlog.get_logger(__name__)
OUT_OF_MEMORY = "OUT_OF_MEMORY"
_MESSAGES = {
    "STEP_FAILED": "a step of the model failed",
    "LANE_STUCK": "a step of the model did not end",
    "EXPLAIN_FAILED": "the explanation failed",
    "WORKER_STUCK": "a part of the request took too long",
}


@dataclass(frozen=True, slots=True)
class Failure:
    """One failure. `reason` is that of ErrorInfo. It holds no exception, whose frames hold the lane's memory."""

    reason: str
    why: str
    error_id: str = field(default_factory=lambda: secrets.token_hex(8))

    @staticmethod
    def of(error: Exception, reason: str = "STEP_FAILED") -> Failure:
        """Return what an exception stands for. Memory that ran out is no bug: there was too much to do."""
        reason = OUT_OF_MEMORY if is_out_of_memory(error) else reason
        return Failure(reason, f"{type(error).__name__}: {first_line(error)}")

    def outcome(self) -> RequestError:
        """Return what a request ends with. Each gets one of its own, because raising an exception adds to it."""
        if self.reason == OUT_OF_MEMORY:
            return Overloaded(OUT_OF_MEMORY, "memory ran out for the requests that ran together")
        return LaneFailed(self.reason, _MESSAGES[self.reason], error_id=self.error_id, why=self.why)

    def ends_of(self, lane: Lane | None) -> list[Delivery]:
        """Return what a lane has to hand over, with the end of all that it holds. Nothing if it cannot say."""
        try:
            return lane.fail(self.outcome) if lane else []
        except Exception:  # noqa: BLE001 - its counts may be what is broken
            _log.exception("a lane that failed cannot say what it held", error_id=self.error_id)
            return []

    def note(self, metrics: ModelMetrics, **where: object) -> None:
        """Count the failure and log it, with the exception that is being handled, if there is one."""
        metrics.failed(self.reason)
        _log.error(
            "failed",
            reason=self.reason,
            error_id=self.error_id,
            model=metrics.name,
            why=self.why,
            **where,
            exc_info=sys.exc_info()[0] is not None,
        )


def stack_of(thread: threading.Thread | None) -> str:
    """Return where a thread is now, the innermost call last. Lines of code, and nothing that callers sent."""
    ident = thread.ident if thread and thread.is_alive() else None
    frame = sys._current_frames().get(ident) if ident else None  # noqa: SLF001 - there is no other way
    return "".join(traceback.format_stack(frame)) if frame else ""


# Failures are forgotten after this time.
WINDOW_S = 600.0


class FailureBudget:
    """A budget of `most` failures in WINDOW_S seconds. Any thread may spend of it."""

    def __init__(self, most: int) -> None:
        self.most = most
        self._lock = threading.Lock()
        # Monotonic seconds, the oldest first.
        self._failures: deque[float] = deque()
        # Once more have failed than may: for good.
        self.is_spent = False

    def spend(self) -> bool:
        """Count a failure. Returns whether there was any budget left for it."""
        with self._lock:
            self._forget()
            self._failures.append(time.monotonic())
            self.is_spent |= len(self._failures) > self.most
            return not self.is_spent

    def exhaust(self) -> None:
        """Let nothing fail any more."""
        self.is_spent = True

    @property
    def num_left(self) -> int:
        """How many may still fail."""
        with self._lock:
            self._forget()
            return 0 if self.is_spent else self.most - len(self._failures)

    def _forget(self) -> None:
        while self._failures and self._failures[0] < time.monotonic() - WINDOW_S:
            self._failures.popleft()
