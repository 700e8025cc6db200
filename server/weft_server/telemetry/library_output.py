"""What Python and libraries say on standard error by themselves: here it becomes events of our log, or lines of it."""

from __future__ import annotations

import io
import logging
import sys
import threading
from typing import TYPE_CHECKING, Any

import structlog

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import TracebackType

_log = structlog.get_logger(__name__)
# gRPC's words when an answer cannot be sent, because its connection has ended. That is no fault of the server's.
_GONE = "ExecuteBatchError raised in core by servicer method"


def route_others(write: Callable[[str], None], *, is_plain: bool, level: int) -> None:
    """Let warnings, loggers of libraries, uncaught exceptions and prints take the way of our events.

    With `is_plain`, a line that is printed stays as it is. Else it is an event. Loggers are heard from `level` on.
    """
    logging.basicConfig(handlers=[_Events()], level=level, force=True)
    logging.captureWarnings(capture=True)
    sys.excepthook = _uncaught
    threading.excepthook = _uncaught_in_thread
    sys.unraisablehook = _unraisable
    sys.stderr = _Printed(write if is_plain else _tell)


def _tell(text: str) -> None:
    for line in text.splitlines():
        _log.error(line, logger="stderr")


def _uncaught(kind: type[BaseException], error: BaseException, traceback: TracebackType | None) -> None:
    _log.critical("uncaught exception", exc_info=(kind, error, traceback))


def _uncaught_in_thread(raised: threading.ExceptHookArgs) -> None:
    if raised.exc_type is SystemExit:
        return
    thread = raised.thread.name if raised.thread else ""
    _log.critical("a thread ended", thread=thread, exc_info=(raised.exc_type, raised.exc_value, raised.exc_traceback))


def _unraisable(raised: Any) -> None:
    what = raised.err_msg or "exception ignored"
    _log.error(what, where=_name(raised.object), exc_info=(raised.exc_type, raised.exc_value, raised.exc_traceback))


def _name(what: object) -> str:
    """Which kind of thing it is: what it says of itself may hold what callers sent."""
    return getattr(what, "__qualname__", type(what).__qualname__)


class _Events(logging.Handler):
    """Takes what Python's own loggers are told."""

    def emit(self, record: logging.LogRecord) -> None:
        """Never fail, for the library would. Of what cannot be said nothing is shown: callers may have sent it."""
        try:
            _log.log(_level(record), record.getMessage().rstrip(), logger=record.name, exc_info=record.exc_info)
        except Exception as error:  # noqa: BLE001 - arguments that do not fit, or objects that cannot be shown
            why, at = type(error).__name__, f"{record.module}:{record.lineno}"
            _log.error("a library's event could not be said", logger=record.name, at=at, why=why)


def _level(record: logging.LogRecord) -> int:
    """A library may have levels of its own. Give the next lower one of those that Python names."""
    if str(record.msg).startswith(_GONE):
        return logging.DEBUG
    return min(record.levelno // 10 * 10, logging.CRITICAL)


class _Printed(io.TextIOBase):
    """In place of sys.stderr: takes whole lines, and whatever has been printed when it is flushed."""

    def __init__(self, take: Callable[[str], None]) -> None:
        self._take = take
        self._lock = threading.RLock()
        self._begun = ""

    def write(self, text: str) -> int:
        with self._lock:
            whole, newline, self._begun = (self._begun + text).rpartition("\n")
        if newline:
            self._take(whole + newline)
        return len(text)

    def flush(self) -> None:
        with self._lock:
            rest, self._begun = self._begun, ""
        if rest:
            self._take(rest + "\n")

    def fileno(self) -> int:
        return sys.__stderr__.fileno() if sys.__stderr__ else 2

    def writable(self) -> bool:
        return True
