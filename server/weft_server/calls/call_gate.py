"""What all calls pass, by gRPC or by HTTP: admitted by their headers, counted once, refused while the server drains."""

from __future__ import annotations

import asyncio
import logging
import time
from typing import TYPE_CHECKING, Any

import structlog

from weft_server.admission.load_shedding import LoadShedding
from weft_server.errors import DeadlineExpired, Draining, RequestError
from weft_server.transport.handlers import let_go
from weft_server.transport.status import to_status

if TYPE_CHECKING:
    from collections.abc import Callable, Collection

    from weft_proto.v1 import common_pb2
    from weft_server.admission.early_admission import EarlyAdmission
    from weft_server.models.request_context import RequestContext
    from weft_server.telemetry.metrics import Metrics
    from weft_server.transport.status import Status
    from weft_server.transport.traffic import Traffic

_log = structlog.get_logger(__name__)
# Statuses that are no answer of a handler.
OK, CANCELLED, DEADLINE_EXCEEDED = "OK", "CANCELLED", "DEADLINE_EXCEEDED"
# A caller's deadline passes before ours: then it goes. The way here takes time, and gRPC rounds the rest up by a
# hundredth.
EARLY_S = 0.05
EARLY_SHARE = 0.01


class CallGate:
    """One for the ports that drain together. `refuse` refuses new calls, `idle` waits for the admitted ones.

    The gates of a server share one `traffic`. To be used on the event loop's thread.
    """

    def __init__(self, metrics: Metrics, early_admission: EarlyAdmission, traffic: Traffic) -> None:
        self.draining = False
        # Calls whose messages have come, until their answers are out.
        self.num_active = 0
        self.traffic = traffic
        self._metrics = metrics
        self._early_admission = early_admission
        self._changed = asyncio.Event()
        self._last_call = 0.0
        self._load_shedding = LoadShedding(traffic.places.max_connections)
        # Bound once: asking the module's lazy logger for a disabled level costs 3 us.
        self._log = _log.bind()

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

    def count_ended(self, call: RequestContext) -> None:
        """Count a call that was let go, as it ended for its caller."""
        if call.given_up:
            call.code, call.reason = CANCELLED, call.given_up
        elif call.has_deadline and _is_late(call):
            call.code, call.reason = DEADLINE_EXCEEDED, DeadlineExpired().reason
        self._count(call, call.code, call.reason)

    def refused(self, call: RequestContext, error: RequestError) -> Status:
        """Count a call that is refused before its message is read, and return its status."""
        self._last_call = time.monotonic()
        status = to_status(error)
        self._count(call, status.code.name, error.reason)
        return status

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
        status = to_status(error)
        call.code, call.reason = status.code.name, error.reason if isinstance(error, RequestError) else ""
        if status.error_id:
            _log.error("bug", error_id=status.error_id, method=call.method, request_id=call.request_id, exc_info=error)
        return status

    def _count(self, call: RequestContext, code: str, reason: str) -> None:
        seconds = _end_of(call) - call.started
        self._metrics.count_call(call.metrics, code, reason, seconds)
        # What is said of a call costs 2 us to put together.
        if not self._log.is_enabled_for(logging.DEBUG):
            return
        self._log.debug(
            "call",
            method=call.method,
            code=code,
            reason=reason,
            seconds=round(seconds, 6),
            request_id=call.request_id,
            tenant=call.tenant,
            model=call.metrics.name if call.metrics else "",
        )


def _is_late(call: RequestContext) -> bool:
    """Whether a call counts as one that met its deadline.

    Either its answer is out too late, or its caller went about then. If a caller goes so late that it is answered, it
    tells nobody: that call counts as answered.
    """
    end = _end_of(call)
    if call.code == CANCELLED:
        return end >= call.deadline - EARLY_S - EARLY_SHARE * (call.deadline - call.started)
    return call.code == OK and end >= call.deadline


def _end_of(call: RequestContext) -> float:
    return time.monotonic() if call.ended is None else call.ended
