"""Stands around every RPC of weft.v1: counts it, refuses while draining, turns what goes wrong into a typed status."""

from __future__ import annotations

import asyncio
import time
from contextlib import aclosing
from typing import TYPE_CHECKING, Any

import grpc
import grpc.aio
import structlog

from weft_server.door.brake import Brake
from weft_server.door.handlers import (
    abort,
    answering,
    behaviour_of,
    judging,
    let_go,
    parsing,
    reflecting,
    refusing,
    with_behaviour,
    write,
)
from weft_server.door.health import is_open
from weft_server.door.limits import CHECKS, max_bytes
from weft_server.door.status import to_status
from weft_server.errors import DeadlineExpired, Draining, MethodNotFound, Overloaded, RequestError
from weft_server.serving.call import CALL, Call

if TYPE_CHECKING:
    from weft_server.door.access import Access
    from weft_server.door.gate import Gate
    from weft_server.door.handlers import Parse
    from weft_server.door.status import Status
    from weft_server.telemetry.metrics import Metrics

_log = structlog.get_logger(__name__)
_OURS = "/weft.v1."
_HEALTH = "/grpc.health.v1."
_REFLECTION = "/grpc.reflection."
# A caller's deadline passes before ours. The way here takes time, and gRPC rounds the rest up by a hundredth.
EARLY_S = 0.05
EARLY_SHARE = 0.01


class Guard(grpc.aio.ServerInterceptor):
    """One for the server. `draining` refuses new calls. `idle` waits for the admitted ones."""

    def __init__(self, metrics: Metrics, access: Access, gate: Gate, max_request_bytes: int) -> None:
        self._access = access
        self._max_request_bytes = max_request_bytes
        self.draining = False
        self.num_active = 0
        self._metrics = metrics
        self.gate = gate
        self._changed = asyncio.Event()
        self._last_call = 0.0
        self._brake = Brake()
        self._handlers: dict[str, Any] = {}
        # Bound once: asking the module's lazy logger for a disabled level costs 3 us.
        self._log = _log.bind()

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

    async def intercept_service(self, continuation: Any, handler_call_details: Any) -> Any:
        """Wrap the handlers of weft.v1, of health and of reflection."""
        method = handler_call_details.method
        if method not in self._handlers:
            handler = await continuation(handler_call_details)
            if handler is None:
                # The method's name is not logged.
                return self._judge(method, Call(""), MethodNotFound(method))
            self._handlers[method] = self._wrap(method, handler)
        caller = None
        # Whether health's answer is for everybody depends on the message.
        if not method.startswith(_HEALTH):
            try:
                caller = self._access.of_metadata(method, handler_call_details.invocation_metadata)
            except RequestError as error:
                return self._refuse(Call(method.rpartition("/")[2]), error)
        if method.startswith(_OURS):
            call = Call(method.rpartition("/")[2], tenant=caller.name if caller else "", is_known=caller is not None)
            try:
                self._check(call, handler_call_details)
            except RequestError as error:
                return self._refuse(call, error) if call.is_known else self._judge(method, call, error)
            self._expect(call)
        return self._handlers[method]

    def _check(self, call: Call, details: Any) -> None:
        """Raise RequestError if a call is refused before its message is read."""
        if self.draining:
            raise Draining
        self.gate.admit(call, details)

    def _refuse(self, call: Call, error: RequestError) -> Any:
        """A handler for a call that is refused before its message has come."""
        status = self._refused(call, error)
        if isinstance(error, Overloaded):
            return judging(lambda context: self._braked(call, context, status))
        return refusing(status)

    def _judge(self, method: str, call: Call, error: RequestError) -> Any:
        """Do as `_refuse` where nobody has asked yet who calls. Only callers who are known hear why."""

        async def why(context: Any) -> Status:
            try:
                call.tenant = self._access.of_call(method, context).name or call.tenant
            except RequestError as unknown:
                call.metrics = None
                return self._refused(call, unknown)
            status = self._refused(call, error)
            return await self._braked(call, context, status) if isinstance(error, Overloaded) else status

        return judging(why)

    async def _braked(self, call: Call, context: Any, status: Status) -> Status:
        """Return the status of a call that a full model refuses, later if its caller floods."""
        await self._brake.refused(call.tenant or context.peer())
        return status

    def _refused(self, call: Call, error: RequestError) -> Status:
        """Count a refusal, and return its status."""
        self._last_call = time.monotonic()
        status = to_status(error)
        self._count(call, status.code, error.reason)
        return status

    def _wrap(self, method: str, handler: Any) -> Any:
        """What is done around a method's calls. There are two cases.

        1. Those of weft.v1 are counted. A drain refuses new ones and awaits the others.
        2. Of health and reflection, refusals get their status. A drain neither refuses nor awaits such calls.
        """
        parse = parsing(handler.request_deserializer, max_bytes(method, self._max_request_bytes), CHECKS.get(method))
        if method.startswith(_OURS):
            guarded = self._stream if handler.response_streaming else self._unary
            return with_behaviour(handler, guarded(method, behaviour_of(handler), parse))
        if method.startswith(_HEALTH):

            def admit(request: Any, context: Any) -> None:
                if not is_open(request.service):
                    self._access.of_call(method, context)

            return answering(handler, parse, admit)
        assert method.startswith(_REFLECTION), f"{method} is answered and not guarded. This is a bug."
        return reflecting(handler, parse, lambda context: self._access.of_call(method, context))

    def _expect(self, call: Call) -> None:
        """Make sure that a call is counted even if it ends before its handler begins, because its caller has gone."""
        CALL.set(call)
        task = asyncio.current_task()
        assert task is not None, "a call outside of a task. This is a bug."
        task.add_done_callback(lambda _: self._count_unbegun(call))

    def _unary(self, method: str, behaviour: Any, parse: Parse) -> Any:
        async def unary(data: bytes, context: Any) -> Any:
            async with _Watch(self, context):
                self.check(method, context, len(data))
                return await behaviour(parse(data), context)

        return unary

    def _stream(self, method: str, behaviour: Any, parse: Parse) -> Any:
        # This is no generator. A cancellation during a write must reach the servicer now, not when a generator is
        # collected.
        async def stream(data: bytes, context: Any) -> None:
            async with _Watch(self, context):
                self.check(method, context, len(data))
                async with aclosing(behaviour(parse(data), context)) as responses:
                    async for response in responses:
                        await write(context, response)

        return stream

    def check(self, method: str, context: Any, num_bytes: int) -> None:
        """Raise RequestError for who may not call, for a message of too many bytes, and while the server drains."""
        call = CALL.get()
        # Who sent no token is known by a certificate, which only the context has.
        if not call.is_known:
            call.tenant = self._access.of_peer(method, context).name
        if self.draining:
            raise Draining
        self.gate.hold(call, num_bytes)

    def begin(self, call: Call) -> None:
        """Take a call in."""
        call.begun = True
        self.num_active += 1
        self._last_call = time.monotonic()

    def end(self, call: Call, code: grpc.StatusCode, reason: str) -> None:
        """Let a call go and count it."""
        self.num_active -= 1
        self.gate.let_go(call)
        self._changed.set()
        self._count(call, code, reason)
        call.let_go()

    def _count_unbegun(self, call: Call) -> None:
        if not call.begun:
            self._count(call, grpc.StatusCode.CANCELLED, "")

    def _count(self, call: Call, code: grpc.StatusCode, reason: str) -> None:
        seconds = time.monotonic() - call.started
        self._metrics.count_call(call.metrics, code.name, reason, seconds)
        self._log.debug(
            "call",
            method=call.method,
            code=code.name,
            reason=reason,
            seconds=round(seconds, 6),
            request_id=call.request_id,
            tenant=call.tenant,
            model=call.metrics.name if call.metrics else "",
        )


class _Watch:
    """Around one call. A class, because a generator's context manager costs each call 4 us more."""

    __slots__ = ("_call", "_context", "_early_s", "_guard")

    def __init__(self, guard: Guard, context: Any) -> None:
        self._guard = guard
        self._context = context
        self._call = CALL.get()
        # How much before its deadline a call that was cancelled counts as one that met it.
        self._early_s = 0.0

    async def __aenter__(self) -> None:
        remaining = self._context.time_remaining()
        if remaining is not None:
            self._call.deadline = time.monotonic() + remaining
            self._early_s = EARLY_S + EARLY_SHARE * remaining
        self._guard.begin(self._call)

    async def __aexit__(self, kind: object, error: BaseException | None, traceback: object) -> bool:
        """Send the status of an error and suppress the error. gRPC itself raises that the call was aborted."""
        call = self._call
        code = grpc.StatusCode.OK
        reason = ""
        try:
            if isinstance(error, asyncio.CancelledError):
                # gRPC cancels the handler when the caller goes, and when its deadline passes. It sets the status
                # itself.
                code = grpc.StatusCode.CANCELLED
                if time.monotonic() >= call.deadline - self._early_s:
                    code = grpc.StatusCode.DEADLINE_EXCEEDED
                    reason = DeadlineExpired().reason
            elif isinstance(error, Exception):
                status = to_status(error)
                code = status.code
                reason = error.reason if isinstance(error, RequestError) else ""
                if status.error_id:
                    _log.error(
                        "bug", error_id=status.error_id, method=call.method, request_id=call.request_id, exc_info=error
                    )
                await abort(self._context, status)
                return True
        finally:
            self._guard.end(call, code, reason)
            if error:
                let_go(error)
        return False
