"""How the server logs: events with key-value pairs through structlog, one line each, to standard error."""

import logging
import sys
from contextlib import suppress
from typing import Literal, TextIO, cast

import structlog


def configure_logging(log_format: Literal["console", "json"], level: str) -> None:
    """Set structlog up for the process: "console" for people, "json" for machines, from `level` on.

    What is bound with `structlog.contextvars.bind_contextvars`, such as an RPC's request id, is on each of its lines.
    Tracebacks show no local variables, because those hold what callers sent.
    """
    render: list[structlog.typing.Processor]
    if log_format == "json":
        to_dict = structlog.tracebacks.ExceptionDictTransformer(show_locals=False)
        render = [structlog.processors.ExceptionRenderer(to_dict), structlog.processors.JSONRenderer(default=str)]
    else:
        plain = structlog.dev.plain_traceback
        render = [structlog.dev.ConsoleRenderer(colors=sys.stderr.isatty(), exception_formatter=plain)]
    structlog.configure(
        processors=[
            structlog.contextvars.merge_contextvars,
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="iso", utc=True),
            *render,
        ],
        wrapper_class=structlog.make_filtering_bound_logger(logging.getLevelNamesMapping()[level.upper()]),
        logger_factory=structlog.WriteLoggerFactory(file=cast("TextIO", _Lossy(sys.stderr))),
        cache_logger_on_first_use=True,
    )


class _Lossy:
    """A file whose disk may be full, and whose reader may be gone. A line is lost then, and no request."""

    def __init__(self, file: TextIO) -> None:
        self._file = file

    def write(self, text: str) -> None:
        with suppress(OSError):
            self._file.write(text)

    def flush(self) -> None:
        with suppress(OSError):
            self._file.flush()
