"""A span for each request that is sampled, with one for each stage of it. They are made when it has ended.

Attributes: https://opentelemetry.io/docs/specs/semconv/ of rpc, http and gen_ai. Imported only where somebody traces.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote

from opentelemetry import trace
from opentelemetry.trace import NonRecordingSpan, SpanContext, SpanKind, Status, StatusCode, TraceFlags, TraceState

from weft_proto.inference import methods as open_inference
from weft_proto.v1.methods import METHODS
from weft_server.calls.access_log import OK, PROBES
from weft_server.calls.trace_context import TraceParent, parent_of

if TYPE_CHECKING:
    from collections.abc import Iterator

    from opentelemetry.context import Context

    from weft_server.models.call_usage import CallUsage
    from weft_server.models.request_context import RequestContext

# The name of a method that is none of ours.
_OTHER = "_OTHER"
_RPC_NAMES = {name: each.path[1:] for methods in (METHODS, open_inference.METHODS) for name, each in methods.items()}
# What the server, and no caller, has to answer for.
_FAILURES = frozenset({"UNKNOWN", "DEADLINE_EXCEEDED", "INTERNAL", "UNAVAILABLE", "DATA_LOSS"})
_STREAM = "Stream"
# gen_ai.operation.name: by the route, or else by the method. Of others it is the method.
_OPERATIONS = {
    "/v1/chat/completions": "chat",
    "/v1/completions": "text_completion",
    "Embed": "embeddings",
    "Generate": "generate_content",
}


class CallSpans:
    """One for a server. To be used on the event loop's thread."""

    def __init__(self, tracer: trace.Tracer) -> None:
        self._tracer = tracer

    def record(self, call: RequestContext, code: str, reason: str) -> TraceParent | None:
        """Make the spans of a request that has ended, if it is sampled. Returns the one above the others.

        `call` is the request's first one.
        """
        if call.method in PROBES:
            return None
        now = time.monotonic()
        # What was noted is monotonic. A span has the time of day.
        shift = time.time() - now
        span = self._tracer.start_span(
            f"{call.http_method} {call.http_route}".strip() or _rpc_name(call),
            _context(call),
            SpanKind.SERVER,
            start_time=_ns(call.started + shift),
        )
        if not span.is_recording():
            return None
        span.set_attributes(_attributes(call, code, reason))
        if code in _FAILURES:
            span.set_status(Status(StatusCode.ERROR, reason))
        inside = trace.set_span_in_context(span)
        for name, begin, end in _stages(call.started, call.usage, now):
            self._tracer.start_span(name, inside, start_time=_ns(begin + shift)).end(_ns(end + shift))
        span.end(_ns(now + shift))
        made = span.get_span_context()
        return TraceParent(f"{made.trace_id:032x}", f"{made.span_id:016x}", made.trace_flags)


def _ns(seconds: float) -> int:
    return int(seconds * 1e9)


def _rpc_name(call: RequestContext) -> str:
    return _RPC_NAMES.get(call.method, _OTHER)


def _context(call: RequestContext) -> Context | None:
    """The caller's span, as the parent of ours."""
    parent = parent_of(call.traceparent) if call.traceparent else None
    if parent is None:
        return None
    state = TraceState.from_header([call.tracestate]) if call.tracestate else None
    flags = TraceFlags(parent.flags)
    context = SpanContext(
        int(parent.trace_id, 16), int(parent.span_id, 16), is_remote=True, trace_flags=flags, trace_state=state
    )
    return trace.set_span_in_context(NonRecordingSpan(context))


def _attributes(call: RequestContext, code: str, reason: str) -> dict[str, Any]:
    usage = call.usage
    name, version, _ = call.metrics.labels if call.metrics else ("", "", "")
    said: dict[str, Any] = {
        "client.address": unquote(call.peer.partition(":")[2]).rpartition(":")[0].strip("[]"),
        "weft.request_id": call.request_id,
        "weft.tenant": call.tenant,
    }
    if call.http_method:
        said |= {"http.request.method": call.http_method, "http.route": call.http_route}
        # 0: its caller went before.
        said |= {"http.response.status_code": call.http_status} if call.http_status else {}
    else:
        said |= {"rpc.system.name": "grpc", "rpc.method": _rpc_name(call), "rpc.response.status_code": code}
    if code != OK:
        said |= {"error.type": reason or code}
    if name:
        method = call.method.removeprefix(_STREAM)
        said |= {
            "gen_ai.provider.name": "weft",
            "gen_ai.operation.name": _OPERATIONS.get(call.http_route) or _OPERATIONS.get(method) or method.lower(),
            "gen_ai.request.model": name,
            "gen_ai.response.model": name,
            "gen_ai.request.stream": call.method.startswith(_STREAM),
            "gen_ai.usage.input_tokens": usage.input_tokens,
            "gen_ai.usage.output_tokens": usage.output_tokens,
            "weft.model.version": version,
        }
    if usage.writes_text and usage.first_token:
        said["gen_ai.response.time_to_first_chunk"] = usage.first_token - call.started
    # What is not known is left out.
    return {key: value for key, value in said.items() if value != ""}


def _stages(started: float, usage: CallUsage, ended: float) -> Iterator[tuple[str, float, float]]:
    """Yield (name, begin, end) of each stage that was begun, in monotonic seconds.

    A stage in which a request ended is as long as the request was in it. Where a request had several sequences, a stage
    begins with the first of them.
    """
    over = usage.finished or ended
    if usage.read:
        yield "preprocess", started, usage.read
        yield "queue", usage.read, usage.admitted or over
    if not usage.admitted:
        return
    decoder = usage.admitted
    if usage.encoded or not usage.writes_text:
        decoder = usage.encoded or usage.first_token or over
        yield "encode", usage.admitted, decoder
    if usage.writes_text:
        yield "prefill", decoder, usage.first_token or over
        if usage.first_token:
            yield "decode", usage.first_token, over
    if usage.explained:
        yield "explain", over, usage.explained
    if usage.finished:
        yield "respond", usage.explained or over, ended
