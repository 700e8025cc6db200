"""What all calls pass, by gRPC or by HTTP: admitted by their headers, counted once, refused while the server drains."""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING, Any

import structlog

from weft_server.admission.load_shedding import LoadShedding
from weft_server.calls.access_log import CANCELLED, OK
from weft_server.errors import DeadlineExpired, Draining, InvalidRequest, PermissionDenied, RequestError
from weft_server.transport.handlers import let_go
from weft_server.transport.status import to_status, with_request_id

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Sequence

    from weft_proto.v1 import common_pb2
    from weft_server.admission.early_admission import EarlyAdmission
    from weft_server.calls.access_log import AccessLog
    from weft_server.calls.call_spans import CallSpans
    from weft_server.calls.recent_refusals import RecentRefusals
    from weft_server.models.request_context import RequestContext
    from weft_server.telemetry.metrics import Metrics
    from weft_server.transport.status import Status
    from weft_server.transport.traffic import Traffic

_log = structlog.get_logger(__name__)
DEADLINE_EXCEEDED = "DEADLINE_EXCEEDED"
# A caller's deadline passes before ours: then it goes. The way here takes time, and gRPC rounds the rest up by a
# hundredth.
EARLY_S = 0.05
EARLY_SHARE = 0.01


class CallGate:
    """One for the ports that drain together. `refuse` refuses new calls, `idle` waits for the admitted ones.

    The gates of a server share one `traffic`. To be used on the event loop's thread.
    """

    def __init__(
        self,
        metrics: Metrics,
        early_admission: EarlyAdmission,
        traffic: Traffic,
        access_log: AccessLog,
        recent_refusals: RecentRefusals,
        call_spans: CallSpans | None = None,
    ) -> None:
        """`call_spans` makes a span of each request. None: nobody traces."""
        self.draining = False
        # Calls whose messages have come, until their answers are out.
        self.num_active = 0
        self.traffic = traffic
        self._metrics = metrics
        self._early_admission = early_admission
        self._access_log = access_log
        self._recent_refusals = recent_refusals
        self._call_spans = call_spans
        self._changed = asyncio.Event()
        self._last_call = 0.0
        self._load_shedding = LoadShedding(traffic.places.max_connections)

    def refuse(self) -> None:
        """Drain: refuse new calls, and those whose messages have not come whole."""
        self.draining = True
        self.traffic.incoming.refuse(Draining())

    async def idle(self) -> None:
        """Wait until no call is active."""
        while self.num_active:
            self._changed.clear()
            await self._changed.wait()

    async def quiet(self, seconds: float, at_most: float) -> None:
        """Wait until no call is active and none has come for `seconds`. Give up after `at_most`."""
        give_up = time.monotonic() + at_most
        while self.num_active or time.monotonic() - self._last_call < seconds:
            if time.monotonic() > give_up:
                return
            await asyncio.sleep(seconds / 4)

    def admit(
        self, call: RequestContext, tasks: Collection[common_pb2.Task.ValueType], metadata: Collection[tuple[str, Any]]
    ) -> None:
        """Note where a call stands, by its headers. `tasks` are those of the models that may answer it.

        Raises:
            RequestError: the server drains, or it would be refused whatever its message says.
        """
        if self.draining:
            raise Draining
        call.check_sent_id()
        self._early_admission.admit(call, tasks, metadata)

    async def receive(self, call: RequestContext, source: Any, weigh: Callable[[Any], int]) -> Any:
        """Return the bytes of a call's message, and take the call in.

        `source` has `read` and `abort`, see `Incoming.read`. `weigh` says how much memory the message will take once it
        is parsed.

        Raises:
            RequestError: the server drains, or the message does not come, or it is too much.
        """
        self.traffic.places.use(call.peer)
        if self.draining:
            raise Draining
        self.traffic.outgoing.check(call)
        data = await self.traffic.incoming.read(call, source)
        if self.draining:
            raise Draining
        call.usage.request_bytes = len(data)
        if len(data) > call.max_bytes:
            why = f"has {len(data):,} bytes; where no model takes pictures, at most {call.max_bytes:,} are taken"
            raise InvalidRequest("", f"the request {why}", "MESSAGE_TOO_LARGE")
        self.traffic.incoming.hold(call, weigh(data))
        call.begun = True
        self.num_active += 1
        self._last_call = time.monotonic()
        return data

    def end(self, call: RequestContext) -> None:
        """Let a call go: its answer is out, or given up."""
        self.traffic.close(call)
        if call.begun:
            self.num_active -= 1
            self._changed.set()

    def count_ended(self, calls: Sequence[RequestContext]) -> None:
        """Count each call that one request made, as it ended for its caller, and log the request.

        They were let go, and each says when it ended.
        """
        for call in calls:
            if call.given_up:
                call.code, call.reason = CANCELLED, call.given_up
            elif call.has_deadline and _is_late(call):
                call.code, call.reason = DEADLINE_EXCEEDED, DeadlineExpired().reason
            self._metrics.count_call(call.metrics, call.code, call.reason, call.ended - call.started)
        _charge(calls)
        told = _told(calls)
        self._tell(calls[0], told.code, told.reason)

    def refused(self, call: RequestContext, error: RequestError) -> Status:
        """Count and log a call that is refused before its message is read, and return its status."""
        self._last_call = time.monotonic()
        status = to_status(error)
        if isinstance(error, PermissionDenied):
            call.tenant = error.name
        self._metrics.count_call(call.metrics, status.code.name, error.reason, self._last_call - call.started)
        _charge((call,))
        self._tell(call, status.code.name, error.reason)
        return with_request_id(status, call)

    def _tell(self, call: RequestContext, code: str, reason: str) -> None:
        """Log a request's end, and trace it. Keep it, if it was refused."""
        self._recent_refusals.note(call, code, reason)
        span = self._call_spans.record(call, code, reason) if self._call_spans else None
        if span:
            self._metrics.exemplify(call.metrics, _latencies(call), span)
        self._access_log.write(call, code, reason, span.trace_id if span else "")

    async def shed(self, call: RequestContext, *, by_http: bool = False) -> None:
        """Return when a call that finds no room may be told, later if its caller floods.

        By HTTP a stranger is an address, and by gRPC a connection.
        """
        self.traffic.places.use(call.peer)
        await self.load_shedding(call, by_http=by_http)

    async def load_shedding(self, call: RequestContext, *, by_http: bool = False) -> None:
        """Do as `shed` for a call whose caller has been seen to call."""
        stranger = call.peer.rpartition(":")[0] if by_http else call.peer
        await self._load_shedding.refused(call.tenant or stranger, holds_connection=by_http)

    async def let_wait(self, call: RequestContext, error: RequestError, *, by_http: bool = False) -> None:
        """Do as `load_shedding` for a call whose message has come. Nothing of the request waits with it."""
        call.let_go()
        let_go(error)
        self.traffic.incoming.let_go(call)
        await self.load_shedding(call, by_http=by_http)

    def failed(self, call: RequestContext, error: Exception) -> Status:
        """Note how a call failed, and return its status. A bug is logged."""
        status = with_request_id(to_status(error), call)
        call.code, call.reason = status.code.name, error.reason if isinstance(error, RequestError) else ""
        if status.error_id:
            _log.error("bug", error_id=status.error_id, method=call.method, request_id=call.request_id, exc_info=error)
        return status


def _charge(calls: Sequence[RequestContext]) -> None:
    """Count a request under its account, if it has one. All calls that are made for it have one usage."""
    first = calls[0]
    if first.account:
        asked = next((call.metrics for call in calls if call.metrics), None)
        first.account.ended(asked.name if asked else "", first.usage)


def _latencies(call: RequestContext) -> dict[str, float]:
    """What the histograms of latencies, by their names, were told of a request."""
    usage, started = call.usage, call.started
    said = {
        "request_duration_seconds": min(call.ended, time.monotonic()) - started,
        "queue_time_seconds": usage.admitted - started,
        "time_to_first_token_seconds": usage.first_token - started if usage.writes_text else 0.0,
    }
    return {name: seconds for name, seconds in said.items() if seconds > 0}


def _told(calls: Sequence[RequestContext]) -> RequestContext:
    """The call whose status the request's caller was told: with the first that fails, the others are given up."""
    if len(calls) == 1:
        return calls[0]
    return min(calls, key=lambda call: (call.code == OK, call.code == CANCELLED))


def _is_late(call: RequestContext) -> bool:
    """Whether a call counts as one that met its deadline.

    Either its answer is out too late, or its caller went about then. If a caller goes so late that it is answered, it
    tells nobody: that call counts as answered.
    """
    if call.code == CANCELLED:
        return call.ended >= call.deadline - EARLY_S - EARLY_SHARE * (call.deadline - call.started)
    return call.code == OK and call.ended >= call.deadline
