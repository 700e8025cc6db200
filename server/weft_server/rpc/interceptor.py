"""Stands around every RPC: counts it, refuses while draining, turns what goes wrong into a typed status."""

from __future__ import annotations

import asyncio
import time
from contextlib import aclosing
from typing import TYPE_CHECKING, Any

import grpc
import grpc.aio

from weft_proto.inference.methods import METHOD_AT, SERVICE
from weft_server.admission.message_limits import check_of, max_bytes
from weft_server.calls.access_log import CANCELLED, OK
from weft_server.errors import MethodNotFound, Overloaded, RequestError
from weft_server.models.request_context import REQUEST_CONTEXT, REQUEST_ID_KEY, RequestContext
from weft_server.rpc.health import MODEL_PREFIX, is_open
from weft_server.rpc.standard_services import answering, reflecting
from weft_server.transport.handlers import Parser, abort, behaviour_of, let_go, refusing, sending

if TYPE_CHECKING:
    from weft_server.auth.authorization import Authorization
    from weft_server.calls.call_gate import CallGate
    from weft_server.transport.status import Status

# Every call of these is admitted, counted and drained.
_OURS = ("/weft.v1.", f"/{SERVICE}/")
_HEALTH = "/grpc.health.v1."
_REFLECTION = "/grpc.reflection."


class Interceptor(grpc.aio.ServerInterceptor):
    """One for each port: it keeps the handlers of its server."""

    def __init__(self, gate: CallGate, access: Authorization, max_request_bytes: int) -> None:
        self.gate = gate
        self.traffic = gate.traffic
        self._access = access
        self._max_request_bytes = max_request_bytes
        self._handlers: dict[str, Any] = {}

    async def intercept_service(self, continuation: Any, handler_call_details: Any) -> Any:
        """Wrap the handlers of weft.v1, of the Open Inference Protocol, of health and of reflection."""
        method = handler_call_details.method
        if method not in self._handlers:
            handler = await continuation(handler_call_details)
            if handler is None:
                # The method's name is not logged.
                unknown = RequestContext("")
                unknown.hear(handler_call_details.invocation_metadata)
                return self._judge(method, unknown, MethodNotFound(method))
            self._handlers[method] = self._wrap(method, handler)
        call = RequestContext(method.rpartition("/")[2])
        is_probe = method.startswith(_HEALTH)
        # Whether health's answer is for everybody depends on the message.
        call.is_known = is_probe
        try:
            if not is_probe:
                self._admit(method, call, handler_call_details)
        except RequestError as error:
            return self._refuse(call, error) if call.is_known else self._judge(method, call, error)
        self._expect(call, is_counted=method.startswith(_OURS))
        return self._handlers[method]

    def _admit(self, method: str, call: RequestContext, details: Any) -> None:
        """Raise RequestError if a call is refused before its message is read."""
        call.hear(details.invocation_metadata)
        try:
            caller = self._access.of_metadata(method, details.invocation_metadata)
        except RequestError:
            call.is_known = True
            raise
        if caller:
            call.is_known = True
            self._access.note(call, caller)
        if method.startswith(_OURS):
            known = METHOD_AT.get(method)
            self.gate.admit(call, known.tasks if known else (), details.invocation_metadata)
        self.traffic.open(call)

    def _refuse(self, call: RequestContext, error: RequestError) -> Any:
        """A handler for a call that is refused before its message has come."""
        return refusing(lambda context: self._refused(call, context, error))

    def _judge(self, method: str, call: RequestContext, error: RequestError) -> Any:
        """Do as `_refuse` where nobody has asked yet who calls. Only callers who are known hear why."""

        async def why(context: Any) -> Status:
            try:
                identity = self._access.of_call(method, context)
            except RequestError as unknown:
                call.metrics = None
                return await self._refused(call, context, unknown)
            if identity.name:
                self._access.note(call, identity)
            return await self._refused(call, context, error)

        return refusing(why)

    async def _refused(self, call: RequestContext, context: Any, error: RequestError) -> Status:
        """Return the status of a call that is refused. One that finds no room hears it later if its caller floods."""
        # The log counts strangers by where they come from.
        call.peer = context.peer()
        status = self.gate.refused(call, error)
        if isinstance(error, Overloaded):
            await self.gate.shed(call)
        return status

    def _wrap(self, method: str, handler: Any) -> Any:
        """What is done around a method's calls. Each handler reads its messages itself, as bytes. There are two cases.

        1. Those of weft.v1 and of the Open Inference Protocol are counted. A drain refuses new ones, and awaits others.
        2. Of health and reflection, refusals get their status. A drain neither refuses nor awaits such calls.
        """
        deserialize = handler.request_deserializer
        parser = Parser(deserialize, max_bytes(method, self._max_request_bytes), check_of(deserialize))
        if method.startswith(_OURS):
            if handler.response_streaming:
                return grpc.stream_stream_rpc_method_handler(self._stream(method, handler, parser))
            return grpc.stream_unary_rpc_method_handler(self._unary(method, handler, parser))
        outgoing = self.traffic.outgoing
        if method.startswith(_HEALTH):

            def admit(request: Any, context: Any) -> None:
                if not is_open(request.service):
                    identity = self._access.of_call(method, context)
                    identity.models.check_shown(request.service.removeprefix(MODEL_PREFIX))

            return answering(handler, parser, self._receive_probe, outgoing, admit)
        assert method.startswith(_REFLECTION), f"{method} is answered and not guarded. This is a bug."
        return reflecting(
            handler, parser, self._receive_next, outgoing, lambda context: self._access.of_call(method, context)
        )

    def _expect(self, call: RequestContext, *, is_counted: bool) -> None:
        """Let a call be ended whatever becomes of it. gRPC's task for it ends when its answer has passed to the caller.

        Its handler ends before that, and does not even begin if its caller goes at once.
        """
        REQUEST_CONTEXT.set(call)
        task = asyncio.current_task()
        assert task is not None, "a call outside of a task. This is a bug."
        task.add_done_callback(lambda _: self._end(call, is_counted=is_counted))

    def _unary(self, method: str, handler: Any, parser: Parser) -> Any:
        behaviour, serialize = behaviour_of(handler), handler.response_serializer or bytes

        async def unary(_: Any, context: Any) -> Any:
            call = REQUEST_CONTEXT.get()
            async with _Watch(self.gate, call, context):
                data = serialize(await behaviour(await self._receive(method, call, context, parser), context))
                self.traffic.outgoing.begin(call, len(data))
                return data

        return unary

    def _stream(self, method: str, handler: Any, parser: Parser) -> Any:
        behaviour, serialize = behaviour_of(handler), handler.response_serializer or bytes

        # This is no generator. A cancellation during a write must reach the servicer now, not when a generator is
        # collected.
        async def stream(_: Any, context: Any) -> None:
            call = REQUEST_CONTEXT.get()
            async with _Watch(self.gate, call, context):
                responses = behaviour(await self._receive(method, call, context, parser), context)
                async with aclosing(responses):
                    async for response in responses:
                        await sending(self.traffic.outgoing, call, context, serialize(response))

        return stream

    async def _receive(self, method: str, call: RequestContext, context: Any, parser: Parser) -> Any:
        """Return the message of a call, parsed, and take the call in.

        Raises RequestError for who may not call, while the server drains, and for a message that does not come or is
        too much.
        """
        # Who sent no token is known by a certificate, which only the context has.
        if not call.is_known:
            self._access.note(call, self._access.of_peer(method, context))
            self.traffic.claim(call)
        call.peer = context.peer()
        return parser.parse(await self.gate.receive(call, context, parser.weigh))

    async def _receive_probe(self, context: Any) -> Any:
        """Return the message of a call that everybody may make. Raises RequestError if it does not come at once."""
        call = REQUEST_CONTEXT.get()
        call.peer = context.peer()
        self.traffic.open_probe(call)
        return await self.traffic.probes.read(call, context)

    async def _receive_next(self, context: Any) -> Any:
        """Return the next message of a stream, or EOF. Raises RequestError if it does not come in time."""
        call = REQUEST_CONTEXT.get()
        call.peer = context.peer()
        return await self.traffic.incoming.read_next(call, context)

    def _end(self, call: RequestContext, *, is_counted: bool) -> None:
        """Let a call go and count it."""
        self.gate.end(call)
        if is_counted:
            call.ended = time.monotonic()
            self.gate.count_ended((call,))


class _Watch:
    """Around a call's handler. A class, because a generator's context manager costs each call 4 us more."""

    __slots__ = ("_call", "_context", "_gate")

    def __init__(self, gate: CallGate, call: RequestContext, context: Any) -> None:
        self._gate = gate
        self._context = context
        self._call = call

    async def __aenter__(self) -> None:
        remaining = self._context.time_remaining()
        if remaining is not None:
            self._call.deadline = time.monotonic() + remaining

    async def __aexit__(self, kind: object, error: BaseException | None, traceback: object) -> bool:
        """Send the status of an error and suppress the error. gRPC itself raises that the call was aborted."""
        # Its frames hold the request, and a refusal may be told later.
        del traceback
        call = self._call
        call.code, call.reason = OK, ""
        try:
            if isinstance(error, asyncio.CancelledError):
                # gRPC cancels the handler when the caller goes, and when its deadline passes. It sets the status
                # itself. Which of both it was, the gate says.
                call.code = CANCELLED
            elif isinstance(error, Exception):
                await self._refuse(error)
                return True
            elif call.sent_id:
                self._context.set_trailing_metadata(((REQUEST_ID_KEY, call.request_id),))
        finally:
            # The model may leave, and the message is nobody's. The answer is counted until it is out.
            call.let_go()
            if error:
                let_go(error)
        return False

    async def _refuse(self, error: Exception) -> None:
        status = self._gate.failed(self._call, error)
        # A message that was ended on its way has its status already.
        if self._context.done():
            return
        if isinstance(error, Overloaded):
            await self._gate.let_wait(self._call, error)
        await abort(self._context, status)
