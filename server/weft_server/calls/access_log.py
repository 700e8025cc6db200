"""One line of the log for each request that was refused or has failed, or for each one. No line has a text in it."""

from __future__ import annotations

import logging
import time
from collections import Counter
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import structlog

from weft_server.calls.trace_context import parent_of
from weft_server.transport.sweep import Sweep

if TYPE_CHECKING:
    from weft_server.models.request_context import RequestContext

_log = structlog.get_logger(__name__)
OK, CANCELLED = "OK", "CANCELLED"
# What the server, and no caller, has to answer for.
_SERIOUS = frozenset({"INTERNAL", "UNAVAILABLE", "RESOURCE_EXHAUSTED", "DEADLINE_EXCEEDED"})
# Health, as the Open Inference Protocol asks for it. Probes come every few seconds.
PROBES = frozenset({"ServerLive", "ServerReady", "ModelReady"})
# Of one kind, as many lines in a window. The rest of them are counted, and told in one line at its end.
MAX_LINES = 50
WINDOW_S = 10.0
# Callers without a name who have kinds of their own in a window. An attacker may have many addresses.
MAX_STRANGERS = 64
# On the line of a call whose caller went, nothing else being said of it.
_GONE = "CALLER_GONE"


class _LineKind(NamedTuple):
    """Lines that are like each other."""

    tenant: str
    # Of a caller without a name. Empty for one with a name, and for those beyond MAX_STRANGERS.
    host: str
    code: str
    reason: str


class AccessLog:
    """One for all ports of a server. To be used on the event loop's thread."""

    def __init__(self, which: Literal["off", "errors", "all"]) -> None:
        self._has_errors, self._has_all = which != "off", which == "all"
        self._counts: Counter[_LineKind] = Counter()
        self._strangers: set[str] = set()
        self._sweep = Sweep(self.end_window, self._counts, WINDOW_S)
        # Bound once: asking the module's lazy logger for a level costs 3 us.
        self._log = _log.bind()

    def write(self, call: RequestContext, code: str, reason: str, trace_id: str = "") -> None:
        """Say how a request ended, if it is to be said. `call` is the request's first one.

        `trace_id` is that of the span that was made of it. Without one, it is what its headers say.
        """
        if not (self._has_all if code == OK else self._has_errors) or call.method in PROBES:
            return
        if code == CANCELLED:
            reason = reason or _GONE
        # Who wants all lines gets all.
        if self._has_all or self._has_room(_LineKind(call.tenant, self._host_of(call), code, reason)):
            self._log.log(_level(code), "call", **_fields(call, code, reason, trace_id))

    def end_window(self) -> None:
        """Say how many lines were left out of each kind, and begin to count anew."""
        for kind, count in self._counts.items():
            if count > MAX_LINES:
                self._log.log(
                    _level(kind.code),
                    "more calls like it",
                    number=count - MAX_LINES,
                    within_s=WINDOW_S,
                    tenant=kind.tenant,
                    code=kind.code,
                    reason=kind.reason,
                )
        self._counts.clear()
        self._strangers.clear()

    def _has_room(self, kind: _LineKind) -> bool:
        """Count one more of a kind."""
        self._counts[kind] += 1
        self._sweep.begin()
        return self._counts[kind] <= MAX_LINES

    def _host_of(self, call: RequestContext) -> str:
        """The address of a caller without a name."""
        if call.tenant:
            return ""
        host = call.peer.rpartition(":")[0]
        if host not in self._strangers:
            if len(self._strangers) >= MAX_STRANGERS:
                return ""
            self._strangers.add(host)
        return host


def _level(code: str) -> int:
    return logging.WARNING if code in _SERIOUS else logging.INFO


def _fields(call: RequestContext, code: str, reason: str, trace_id: str) -> dict[str, Any]:
    """What a line says of a request. Each line has all of these."""
    usage, started = call.usage, call.started
    parent = parent_of(call.traceparent) if call.traceparent else None
    name, version, _ = call.metrics.labels if call.metrics else ("", "", "")
    return {
        "request_id": call.request_id,
        "trace_id": trace_id or (parent.trace_id if parent else ""),
        "method": call.method,
        "code": code,
        "reason": reason,
        "model": name,
        "version": int(version) if version else None,
        "tenant": call.tenant,
        "input_tokens": usage.input_tokens,
        "output_tokens": usage.output_tokens,
        "queue_s": round(usage.admitted - started, 6) if usage.admitted else None,
        "first_token_s": round(usage.first_token - started, 6) if usage.first_token else None,
        "total_s": round(time.monotonic() - started, 6),
        "request_bytes": usage.request_bytes,
        "response_bytes": usage.response_bytes,
    }
