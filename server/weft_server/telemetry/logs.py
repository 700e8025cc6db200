"""How the server logs: events with key-value pairs through structlog, one line each, to standard error."""

from __future__ import annotations

import atexit
import logging
import sys
from functools import cache
from typing import TYPE_CHECKING, Any, Literal

import structlog

from weft_server.telemetry.library_output import route_others
from weft_server.telemetry.log_writer import FLUSH_S, LogWriter, make_patient

if TYPE_CHECKING:
    from collections.abc import Callable


def configure_logging(log_format: Literal["console", "json"], level: str) -> None:
    """Set structlog up for the process: "console" for people, "json" for machines, from `level` on.

    What is bound with `structlog.contextvars.bind_contextvars`, such as an RPC's request id, is on each of its lines.
    Tracebacks show no local variables, because those hold what callers sent.

    Nobody who logs waits: a thread writes. What others say in this process, such as warnings, comes as events too.
    """
    render: list[structlog.typing.Processor]
    if log_format == "json":
        to_dict = structlog.tracebacks.ExceptionDictTransformer(show_locals=False)
        render = [structlog.processors.ExceptionRenderer(to_dict), structlog.processors.JSONRenderer(default=str)]
    else:
        plain = structlog.dev.plain_traceback
        render = [structlog.dev.ConsoleRenderer(colors=sys.stderr.isatty(), exception_formatter=plain)]
    least = logging.getLevelNamesMapping()[level.upper()]
    write = _writer().write
    structlog.configure(
        processors=[
            structlog.contextvars.merge_contextvars,
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="iso", utc=True),
            *render,
        ],
        wrapper_class=structlog.make_filtering_bound_logger(least),
        logger_factory=lambda *_: _Lines(write),
        cache_logger_on_first_use=True,
    )
    route_others(write, is_plain=log_format == "console", level=max(least, logging.WARNING))


def flush_logs(timeout_s: float = FLUSH_S) -> None:
    """Wait until what was logged is written, at most this long: a reader may stand still."""
    if _writer.cache_info().currsize:
        _writer().flush(timeout_s)


def num_dropped() -> int:
    """How many events were dropped, because their reader stood still or they could not be written."""
    return _writer().num_dropped if _writer.cache_info().currsize else 0


@cache
def _writer() -> LogWriter:
    """The one of the process. It begins when logging is configured, with what standard error is then."""
    descriptor = sys.stderr.fileno()
    make_patient(descriptor)
    writer = LogWriter(descriptor, _tell_of_gap)
    atexit.register(writer.flush)
    return writer


def _tell_of_gap(num_missing: int) -> str:
    """The line that stands where others are missing, in the format that was chosen."""
    lines: list[str] = []
    settings = structlog.get_config()
    wrapped = settings["wrapper_class"](_Lines(lines.append), settings["processors"], {})
    wrapped.error("events were dropped, because the log's reader stood still", number=num_missing)
    return "".join(lines)


class _Lines:
    """What structlog logs with, when a line is rendered."""

    def __init__(self, write: Callable[[str], Any]) -> None:
        self._write = write

    def msg(self, line: str) -> None:
        self._write(line + "\n")

    log = debug = info = warn = warning = error = critical = fatal = exception = msg
