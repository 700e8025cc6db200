"""Makes calls of weft.v1 for a request of HTTP, as gRPC's interceptor does for its own: timed, typed and counted."""

from __future__ import annotations

import asyncio
import time
from contextlib import aclosing
from typing import TYPE_CHECKING, Any

from weft_server.api.refusal import Refused, refusal_of
from weft_server.auth.tokens import Role
from weft_server.calls.access_log import OK
from weft_server.errors import DeadlineExpired, Overloaded, PermissionDenied
from weft_server.models.request_context import REQUEST_CONTEXT
from weft_server.sequence import Priority
from weft_server.transport.handlers import let_go

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping

    from weft_proto.v1.methods import Method
    from weft_server.calls.call_gate import CallGate
    from weft_server.models.allowed_models import AllowedModels
    from weft_server.models.request_context import RequestContext


class Caller:
    """One for each request of HTTP. `calls` are those that it made."""

    def __init__(
        self, gate: CallGate, answers: Mapping[str, Callable[[Any, Any], Any]], context: RequestContext
    ) -> None:
        """`answers` has what answers each method, by its name. `context` is that of the request."""
        self._gate = gate
        self._answers = answers
        self._context = context
        self.calls: list[RequestContext] = []
        # Set once a refusal for lack of room may be told.
        self._is_shed: asyncio.Event | None = None

    @property
    def allowed_models(self) -> AllowedModels:
        """Those that the request may name."""
        return self._context.allowed_models

    def claim(self, priority: Priority) -> None:
        """Take the class that a request asks for in its body, before its first call. Raises PermissionDenied."""
        if priority is Priority.HIGH and not self._context.may_be_high:
            raise PermissionDenied(self._context.tenant, Role.HIGH, "`priority: high`")
        self._context.priority = priority

    def name(self, request_id: str = "") -> str:
        """Return what the request is called: by its message, by its headers, or by us. Raises InvalidRequest."""
        self._context.name(request_id)
        return self._context.request_id

    async def unary(self, method: Method, request: Any) -> Any:
        """Return the response of a unary method. Raises Refused."""
        call = self._begin(method)
        try:
            response = await _in_time(call, self._answers[method.name](request, call))
        except Exception as error:  # noqa: BLE001 - whatever it is, its caller gets a status
            raise await self._failed(call, error) from None
        finally:
            self._end(call)
        call.code, call.reason = OK, ""
        return response

    async def stream(self, method: Method, request: Any) -> AsyncGenerator[Any]:
        """Yield the responses of a streaming method. Raises Refused. To be closed by `aclosing`.

        Streams that go on at the same time each need a task of their own.
        """
        call = self._begin(method)
        try:
            async with aclosing(self._answers[method.name](request, call)) as responses:
                while (response := await _in_time(call, anext(responses, None))) is not None:
                    yield response
        except Exception as error:  # noqa: BLE001 - whatever it is, its caller gets a status
            raise await self._failed(call, error) from None
        finally:
            self._end(call)
        call.code, call.reason = OK, ""

    def _begin(self, method: Method) -> RequestContext:
        """The context of the next call. The first one is that of the request itself."""
        call = self._context
        if self.calls:
            call = call.another(method.name)
        call.method = method.name
        self.calls.append(call)
        REQUEST_CONTEXT.set(call)
        return call

    def _end(self, call: RequestContext) -> None:
        """Note when a call had its answer. One that nobody reads has none."""
        call.let_go()
        if not self._context.given_up:
            call.ended = time.monotonic()

    async def _failed(self, call: RequestContext, error: Exception) -> Refused:
        refused = Refused(refusal_of(error, self._gate.failed(call, error)))
        call.let_go()
        let_go(error)
        if isinstance(error, Overloaded):
            # Nothing of the request waits.
            self._gate.traffic.incoming.let_go(self._context)
            await self._shed(call)
        return refused

    async def _shed(self, call: RequestContext) -> None:
        """Return when a refusal may be told. All of a request are one refusal, and wait for it together."""
        if self._is_shed:
            await self._is_shed.wait()
            return
        self._is_shed = asyncio.Event()
        try:
            await self._gate.load_shedding(call, by_http=True)
        finally:
            self._is_shed.set()


def _in_time(call: RequestContext, answer: Awaitable[Any]) -> Awaitable[Any]:
    """What may take until a call's deadline. It raises DeadlineExpired then. Without one it costs nothing."""
    return _until(call.deadline, answer) if call.has_deadline else answer


async def _until(deadline: float, answer: Awaitable[Any]) -> Any:
    try:
        # The loop's clock is the monotonic one.
        async with asyncio.timeout_at(deadline) as timeout:
            return await answer
    except TimeoutError:
        if timeout.expired():
            raise DeadlineExpired from None
        raise
