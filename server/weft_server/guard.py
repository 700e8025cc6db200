"""Stands around every RPC of weft.v1: counts it, refuses while draining, turns what goes wrong into a typed status."""

from __future__ import annotations

import asyncio
import time
from contextlib import aclosing
from typing import TYPE_CHECKING, Any

import grpc
import grpc.aio
import structlog
from google.protobuf.message import DecodeError

from weft_server.call import CALL, Call
from weft_server.errors import DeadlineExpired, Draining, InvalidRequest, RequestError
from weft_server.status import Status, to_status

if TYPE_CHECKING:
    from collections.abc import Callable

    from weft_server.metrics import Metrics

_log = structlog.get_logger(__name__)
_OURS = "/weft.v1."
_HEALTH = "/grpc.health.v1."
_REFLECTION = "/grpc.reflection."
# A caller's clock ends a call before ours: the way here takes time, and gRPC rounds what is left up by a hundredth.
EARLY_S = 0.05
EARLY_SHARE = 0.01


class _Malformed:
    """What the deserializer gives for bytes that are no such message; raising there would look like a bug of ours."""


class Guard(grpc.aio.ServerInterceptor):
    """One for the server. `draining` refuses new calls; `idle` waits for the admitted ones."""

    def __init__(self, metrics: Metrics) -> None:
        self.draining = False
        self.num_active = 0
        self._metrics = metrics
        self._changed = asyncio.Event()
        self._last_call = 0.0
        self._handlers: dict[str, Any] = {}
        # Bound once: asking the module's lazy logger for a disabled level costs 3 us.
        self._log = _log.bind()

    async def idle(self) -> None:
        """Wait until no call is active."""
        while self.num_active:
            self._changed.clear()
            await self._changed.wait()

    async def quiet(self, seconds: float, at_most: float) -> None:
        """Wait until no call is active and none has come for `seconds`; give up after `at_most`."""
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
                self._metrics.count_unknown()
                return None
            self._handlers[method] = self._wrap(method, handler)
        if method.startswith(_OURS):
            self._expect(Call(method.rsplit("/", 1)[-1]))
        return self._handlers[method]

    def _wrap(self, method: str, handler: Any) -> Any:
        if method.startswith(_OURS):
            return _with(handler, (self._stream if handler.response_streaming else self._unary)(_behaviour(handler)))
        if method.startswith(_HEALTH):
            return _with(handler, _answering(_behaviour(handler)))
        return _reflecting(handler) if method.startswith(_REFLECTION) else handler

    def _expect(self, call: Call) -> None:
        """Count a call of ours also if it ends before its handler begins, as one does whose caller goes at once."""
        CALL.set(call)
        task = asyncio.current_task()
        assert task is not None, "a call outside of a task. This is a bug."
        task.add_done_callback(lambda _: self._count_unbegun(call))

    def _unary(self, behaviour: Any) -> Any:
        async def unary(request: Any, context: Any) -> Any:
            async with _Watch(self, context):
                self.check(request)
                return await behaviour(request, context)

        return unary

    def _stream(self, behaviour: Any) -> Any:
        # No generator: a cancellation during a write must reach the servicer now, not when a generator is collected.
        async def stream(request: Any, context: Any) -> None:
            async with _Watch(self, context):
                self.check(request)
                async with aclosing(behaviour(request, context)) as responses:
                    async for response in responses:
                        await _write(context, response)

        return stream

    def check(self, request: Any) -> None:
        """Raise RequestError for what no servicer shall see."""
        if self.draining:
            raise Draining
        _check_message(request)

    def begin(self, call: Call) -> None:
        """Take a call in."""
        call.begun = True
        self.num_active += 1
        self._last_call = time.monotonic()

    def end(self, call: Call, code: grpc.StatusCode, reason: str) -> None:
        """Let a call go and count it."""
        self.num_active -= 1
        self._changed.set()
        self._count(call, code, reason)

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
            model=call.metrics.name if call.metrics else "",
        )


class _Watch:
    """Around one call. A class, because a generator's context manager costs each call 4 us more."""

    __slots__ = ("_call", "_context", "_early_s", "_guard")

    def __init__(self, guard: Guard, context: Any) -> None:
        self._guard, self._context, self._call = guard, context, CALL.get()
        self._early_s = 0.0

    async def __aenter__(self) -> None:
        remaining = self._context.time_remaining()
        if remaining is not None:
            self._call.deadline = time.monotonic() + remaining
            self._early_s = EARLY_S + EARLY_SHARE * remaining
        self._guard.begin(self._call)

    async def __aexit__(self, kind: object, error: BaseException | None, traceback: object) -> bool:
        """Send what went wrong. It is suppressed then: gRPC itself raises once more that the call was aborted."""
        call, code, reason = self._call, grpc.StatusCode.OK, ""
        try:
            if isinstance(error, asyncio.CancelledError):
                # gRPC cancels the handler when the caller goes and when its deadline passes; it sets the status itself.
                code = grpc.StatusCode.CANCELLED
                if time.monotonic() >= call.deadline - self._early_s:
                    code, reason = grpc.StatusCode.DEADLINE_EXCEEDED, DeadlineExpired().reason
            elif isinstance(error, Exception):
                status = to_status(error)
                code, reason = status.code, error.reason if isinstance(error, RequestError) else ""
                if status.error_id:
                    _log.error(
                        "bug", error_id=status.error_id, method=call.method, request_id=call.request_id, exc_info=error
                    )
                await _abort(self._context, status)
                return True
        finally:
            self._guard.end(call, code, reason)
            if error:
                _let_go(error)
        return False


async def _abort(context: Any, status: Status) -> None:
    """Send a status that is not OK. gRPC keeps what `abort` raises, so that must hold no frame of ours."""
    try:
        await context.abort(status.code, status.message, status.trailing_metadata)
    except grpc.aio.AbortError as aborted:
        _let_go(aborted)


def _let_go(error: BaseException) -> None:
    """Drop the frames of an error, and of those that it came from: they hold the request and what was made of it.

    Whoever keeps the error, as gRPC and a sequence's reply do, would keep those until the garbage collector comes.
    """
    errors: list[BaseException | None] = [error]
    while errors:
        if last := errors.pop():
            errors += (last.__cause__, last.__context__)
            last.__traceback__ = last.__cause__ = last.__context__ = None


async def _write(context: Any, response: Any) -> None:
    """Wait for a slow reader; what is produced meanwhile joins the next message."""
    try:
        await context.write(response)
    except grpc.aio.InternalError as error:  # the caller went during the wait; gRPC's own cancellation comes after this
        raise asyncio.CancelledError from error


def _behaviour(handler: Any) -> Any:
    return handler.unary_stream if handler.response_streaming else handler.unary_unary


def _with(handler: Any, behaviour: Any) -> Any:
    """A handler like `handler` that does `behaviour`, and whose deserializer never fails."""
    make = grpc.unary_stream_rpc_method_handler if handler.response_streaming else grpc.unary_unary_rpc_method_handler
    return make(behaviour, _total(handler.request_deserializer), handler.response_serializer)


def _answering(behaviour: Any) -> Any:
    """Give refusals their status. Such calls are not counted, and a drain neither refuses nor awaits them."""

    async def answer(request: Any, context: Any) -> Any:
        try:
            _check_message(request)
            return await behaviour(request, context)
        except RequestError as error:
            await _abort(context, to_status(error))
            _let_go(error)

    return answer


def _reflecting(handler: Any) -> Any:
    """Do the same for reflection, whose requests come as a stream."""

    async def checked(requests: Any) -> Any:
        async for request in requests:
            _check_message(request)
            yield request

    async def answer(requests: Any, context: Any) -> Any:
        try:
            async for response in handler.stream_stream(checked(requests), context):
                yield response
        except RequestError as error:
            await _abort(context, to_status(error))
            _let_go(error)

    return grpc.stream_stream_rpc_method_handler(
        answer, _total(handler.request_deserializer), handler.response_serializer
    )


def _check_message(request: Any) -> None:
    if isinstance(request, _Malformed):
        raise InvalidRequest(
            "", "the request is not a valid message: bad bytes, or text that is not UTF-8", "MALFORMED_REQUEST"
        )


def _total(deserialize: Callable[[bytes], Any]) -> Callable[[bytes], Any]:
    def parse(data: bytes) -> Any:
        try:
            return deserialize(data)
        except DecodeError:
            return _Malformed()

    return parse
