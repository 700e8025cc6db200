"""Where spans go, by OpenTelemetry's own variables: https://opentelemetry.io/docs/specs/otel/configuration/.

Nothing of OpenTelemetry is imported unless a variable asks for traces. It is the extra `otel`.
"""

from __future__ import annotations

import logging
import re
import threading
from importlib.metadata import version
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any, NamedTuple

import structlog

if TYPE_CHECKING:
    from collections.abc import Mapping

    from opentelemetry.exporter.otlp.proto.grpc.trace_exporter import OTLPSpanExporter
    from opentelemetry.sdk.trace import TracerProvider

_log = structlog.get_logger(__name__)

_EXPORTER = "OTEL_TRACES_EXPORTER"
_DISABLED = "OTEL_SDK_DISABLED"
# The first that is set counts.
_ENDPOINTS = ("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "OTEL_EXPORTER_OTLP_ENDPOINT")
_PROTOCOLS = ("OTEL_EXPORTER_OTLP_TRACES_PROTOCOL", "OTEL_EXPORTER_OTLP_PROTOCOL")
_PACKAGE = "opentelemetry.exporter.otlp.proto.grpc"
# Seconds in which what is left has to be sent when the server ends.
FLUSH_S = 5.0


class Wish(NamedTuple):
    """What the variables ask for: whether spans are to be sent, and why they cannot be, or nothing."""

    traces: bool
    why_not: str = ""
    mend: str = ""


def wish_of(variables: Mapping[str, str]) -> Wish:
    """Read the variables. Traces are on if an exporter is named, or an endpoint, and nothing says no."""
    exporter, (protocol_name, protocol) = variables.get(_EXPORTER, "").lower(), _first(variables, _PROTOCOLS)
    if variables.get(_DISABLED, "").lower() == "true" or exporter == "none":
        return Wish(traces=False)
    if not (exporter or _first(variables, _ENDPOINTS)[1]):
        return Wish(traces=False)
    if exporter not in {"", "otlp"}:
        return Wish(True, f"{_EXPORTER}: must be otlp or none, not {exporter!r}")
    if protocol not in {"", "grpc"}:
        return Wish(True, f"{protocol_name}: must be grpc, not {protocol!r}", "collectors take it at port 4317")
    if not _is_installed():
        return Wish(True, "OpenTelemetry is not installed", "pip install 'weft-serving[otel]'")
    return Wish(traces=True)


class Tracing:
    """Sends spans in the background. What a collector does not take in time is dropped: the queue is bounded.

    The sampler, the queue and the collector are what OpenTelemetry's variables say.
    """

    def __init__(self, provider: TracerProvider, exporter: OTLPSpanExporter) -> None:
        self._provider, self._exporter = provider, exporter
        self.tracer = provider.get_tracer("weft")

    def close(self) -> None:
        """Send what is left, for at most FLUSH_S."""
        # OpenTelemetry knows no limit: its flush ends when the collector has answered, for each part of the queue.
        flush = threading.Thread(target=self._provider.force_flush, name="last spans", daemon=True)
        flush.start()
        flush.join(FLUSH_S)
        self._exporter.shutdown()
        self._provider.shutdown()


def open_tracing(variables: Mapping[str, str]) -> Tracing | None:
    """Return what sends spans, or None if nothing asks for it, or it cannot be had. That is a finding of `checks`."""
    wish = wish_of(variables)
    if not wish.traces or wish.why_not:
        return None
    try:
        return _make()
    except Exception as error:  # noqa: BLE001 - each of its variables says in its own way that it is wrong
        _log.warning("traces are not sent", why=_words(error))
        return None


def complaints(variables: Mapping[str, str]) -> list[str]:
    """Return what OpenTelemetry says of its variables: those that it refuses, and those that it does not follow.

    It says so when it is made. So what sends spans is made, and ended.
    """
    heard = _Heard()
    logger = logging.getLogger("opentelemetry")
    logger.addHandler(heard)
    logger.propagate = False
    try:
        made = _make()
        lines = list(heard.lines)
        # It warns of its own end.
        made.close()
    except Exception as error:  # noqa: BLE001 - see open_tracing
        lines = [*heard.lines, f"traces are not sent: {_words(error)}"]
    finally:
        logger.removeHandler(heard)
        logger.propagate = True
    return [f"{_named_in(line, variables)}: {_without_headers(line, variables)}" for line in dict.fromkeys(lines)]


def _without_headers(line: str, variables: Mapping[str, str]) -> str:
    """Return a line without the values of headers, or parts of them, which it may repeat: they may be secrets."""
    values = [value for name, value in variables.items() if name.startswith("OTEL_") and name.endswith("_HEADERS")]
    said = {part.strip() for value in values for part in (value, *value.split(","), *re.split(r"[,=\s]", value))}
    # What is shorter is in many words.
    for part in sorted((each for each in said if len(each) > 3), key=len, reverse=True):
        line = line.replace(part, "***")
    return line


def _named_in(line: str, variables: Mapping[str, str]) -> str:
    """Which variables a line is about: those whose value it repeats. It seldom has their names."""
    values = {name: value for name, value in variables.items() if value and name.startswith("OTEL_")}
    said = [name for name, value in values.items() if re.search(rf"(?<!\w){re.escape(value)}(?!\w)", line)]
    return ", ".join(sorted(said)) or "OpenTelemetry"


class _Heard(logging.Handler):
    """Keeps what is warned of, without tracebacks."""

    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self.lines: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        """Keep a line."""
        error = record.exc_info[1] if record.exc_info else None
        self.lines.append(f"{record.getMessage()} ({_words(error)})" if error else record.getMessage())


def _make() -> Tracing:
    """Return what sends spans as the variables of this process say. Raises in OpenTelemetry's ways."""
    from opentelemetry.exporter.otlp.proto.grpc.trace_exporter import OTLPSpanExporter  # noqa: PLC0415
    from opentelemetry.sdk.resources import OTELResourceDetector, Resource  # noqa: PLC0415
    from opentelemetry.sdk.trace import TracerProvider  # noqa: PLC0415
    from opentelemetry.sdk.trace.export import BatchSpanProcessor  # noqa: PLC0415

    # It repeats a tracestate that is none, whoever sent it.
    logging.getLogger("opentelemetry.trace.span").setLevel(logging.ERROR)
    ours: dict[str, Any] = {"service.name": "weft", "service.version": version("weft-serving")}
    # The variables win.
    resource = Resource.create(ours).merge(OTELResourceDetector().detect())
    exporter = OTLPSpanExporter()
    provider = TracerProvider(resource=resource, shutdown_on_exit=False)
    provider.add_span_processor(BatchSpanProcessor(exporter))
    return Tracing(provider, exporter)


def _words(error: BaseException) -> str:
    return f"{type(error).__name__}: {error}"


def _first(variables: Mapping[str, str], names: tuple[str, ...]) -> tuple[str, str]:
    """The name and the value of the first that is set."""
    return next(((name, variables[name]) for name in names if variables.get(name)), ("", ""))


def _is_installed() -> bool:
    try:
        return find_spec(_PACKAGE) is not None
    except ModuleNotFoundError:  # a package above it is not there
        return False
