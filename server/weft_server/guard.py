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
from weft_server.errors import Draining, InvalidRequest, RequestError, to_status

if TYPE_CHECKING:
    from collections.abc import Callable

    from weft_server.metrics import Metrics

_log = structlog.get_logger(__name__)
_OURS = "/weft.v1."


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
        """Wrap the handler of a weft.v1 method; health and reflection pass untouched."""
        method = handler_call_details.method
        if method in self._handlers:
            return self._handlers[method]
        handler = await continuation(handler_call_details)
        if handler is None or not method.startswith(_OURS):
            return handler
        self._handlers[method] = wrapped = self._wrap(method, handler)
        return wrapped

    def _wrap(self, method: str, handler: Any) -> Any:
        method = method.rsplit("/", 1)[-1]
        if handler.response_streaming:
            return grpc.unary_stream_rpc_method_handler(
                self._stream(method, handler.unary_stream),
                _total(handler.request_deserializer),
                handler.response_serializer,
            )
        return grpc.unary_unary_rpc_method_handler(
            self._unary(method, handler.unary_unary), _total(handler.request_deserializer), handler.response_serializer
        )

    def _unary(self, method: str, behaviour: Any) -> Any:
        async def unary(request: Any, context: Any) -> Any:
            async with _Watch(self, method, request, context):
                return await behaviour(request, context)

        return unary

    def _stream(self, method: str, behaviour: Any) -> Any:
        # No generator: a cancellation during a write must reach the servicer now, not when a generator is collected.
        async def stream(request: Any, context: Any) -> None:
            async with _Watch(self, method, request, context), aclosing(behaviour(request, context)) as responses:
                async for response in responses:
                    await _write(context, response)

        return stream

    def check(self, request: Any) -> None:
        """Raise RequestError for what no servicer shall see."""
        if self.draining:
            raise Draining
        if isinstance(request, _Malformed):
            raise InvalidRequest(
                "", "the request is not a valid message: bad bytes, or text that is not UTF-8", "MALFORMED_REQUEST"
            )

    def begin(self, call: Call) -> None:
        """Take a call in."""
        self.num_active += 1
        self._last_call = call.started

    def end(self, call: Call, code: grpc.StatusCode, reason: str) -> None:
        """Let a call go and count it."""
        self.num_active -= 1
        self._changed.set()
        seconds = time.monotonic() - call.started
        self._metrics.count_call(call, code.name, reason, seconds)
        self._log.debug(
            "call",
            method=call.method,
            code=code.name,
            reason=reason,
            seconds=round(seconds, 6),
            request_id=call.request_id,
            model=call.model.name if call.model else "",
        )


class _Watch:
    """Around one call. A class, because a generator's context manager costs each call 4 us more."""

    __slots__ = ("_call", "_context", "_guard", "_request")

    def __init__(self, guard: Guard, method: str, request: Any, context: Any) -> None:
        self._guard, self._request, self._context = guard, request, context
        self._call = Call(method)

    async def __aenter__(self) -> None:
        call = self._call
        remaining = self._context.time_remaining()
        if remaining is not None:
            call.deadline = call.started + remaining
        CALL.set(call)
        self._guard.begin(call)
        try:
            self._guard.check(self._request)
        except RequestError as error:
            await self.__aexit__(type(error), error, None)

    async def __aexit__(self, kind: object, error: BaseException | None, traceback: object) -> None:
        call, code, reason = self._call, grpc.StatusCode.OK, ""
        try:
            if isinstance(error, asyncio.CancelledError):
                # gRPC cancels the handler when the caller goes and when its deadline passes; it sets the status itself.
                late = time.monotonic() >= call.deadline
                code = grpc.StatusCode.DEADLINE_EXCEEDED if late else grpc.StatusCode.CANCELLED
            elif isinstance(error, Exception):
                status = to_status(error)
                code, reason = status.code, error.reason if isinstance(error, RequestError) else ""
                if status.error_id:
                    _log.error(
                        "bug", error_id=status.error_id, method=call.method, request_id=call.request_id, exc_info=error
                    )
                await self._context.abort(status.code, status.message, status.trailing_metadata)
        finally:
            self._guard.end(call, code, reason)


async def _write(context: Any, response: Any) -> None:
    """Wait for a slow reader; what is produced meanwhile joins the next message."""
    try:
        await context.write(response)
    except grpc.aio.InternalError as error:  # the caller went during the wait; gRPC's own cancellation comes after this
        raise asyncio.CancelledError from error


def _total(deserialize: Callable[[bytes], Any]) -> Callable[[bytes], Any]:
    def parse(data: bytes) -> Any:
        try:
            return deserialize(data)
        except DecodeError:
            return _Malformed()

    return parse
