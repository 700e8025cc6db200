"""The services that gRPC defines, health and reflection: bounded and refused like ours, and not counted."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import grpc
import grpc.aio
from grpc_reflection.v1alpha import reflection, reflection_pb2

from weft_server.errors import RequestError
from weft_server.models.request_context import REQUEST_CONTEXT
from weft_server.transport.handlers import abort, let_go, sending
from weft_server.transport.status import to_status

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable, Sequence

    from weft_server.transport.handlers import Parser
    from weft_server.transport.outgoing import Outgoing

    Receive = Callable[[Any], Awaitable[Any]]

# The same messages as v1alpha, and clients ask for either.
_REFLECTION_V1 = "grpc.reflection.v1.ServerReflection"
_REFLECT = "ServerReflectionInfo"


class _Writer:
    """What a behaviour that writes its own messages needs of a context. What it writes is counted."""

    def __init__(self, context: Any, serialize: Callable[[Any], bytes], outgoing: Outgoing) -> None:
        self._context = context
        self._serialize = serialize
        self._outgoing = outgoing

    async def write(self, message: Any) -> None:
        await sending(self._outgoing, REQUEST_CONTEXT.get(), self._context, self._serialize(message))


def answering(
    handler: Any, parser: Parser, receive: Receive, outgoing: Outgoing, admit: Callable[[Any, Any], object]
) -> Any:
    """Do as a handler that takes one request does, and give its refusals a status.

    `receive` takes the context and returns the message. `admit` takes request and context, and raises RequestError for
    who may not ask that.
    """

    async def answer(_: Any, context: Any) -> Any:
        try:
            request = parser.read(await receive(context))
            admit(request, context)
            if handler.response_streaming:
                return await handler.unary_stream(request, _Writer(context, handler.response_serializer, outgoing))
            data = handler.response_serializer(await handler.unary_unary(request, context))
        except RequestError as error:
            if not context.done():
                await abort(context, to_status(error))
            let_go(error)
            return None
        outgoing.begin(REQUEST_CONTEXT.get(), len(data))
        return data

    if handler.response_streaming:
        return grpc.stream_stream_rpc_method_handler(answer)
    return grpc.stream_unary_rpc_method_handler(answer)


def reflecting(
    handler: Any, parser: Parser, receive: Receive, outgoing: Outgoing, admit: Callable[[Any], object]
) -> Any:
    """Do as `answering` for reflection, whose requests come as a stream; each has its time.

    `admit` takes the context.
    """

    async def parsed(context: Any) -> AsyncIterator[Any]:
        while (data := await receive(context)) is not grpc.aio.EOF:
            yield parser.read(data)

    async def answer(_: Any, context: Any) -> None:
        try:
            admit(context)
            async for response in handler.stream_stream(parsed(context), context):
                await sending(outgoing, REQUEST_CONTEXT.get(), context, handler.response_serializer(response))
        except RequestError as error:
            if not context.done():
                await abort(context, to_status(error))
            let_go(error)

    return grpc.stream_stream_rpc_method_handler(answer)


def add_reflection(services: Sequence[str], server: grpc.aio.Server) -> None:
    """Answer on `server` what `services` there are and how they are defined."""
    # Reflection is listed under its older name only: grpcio has no definition of the newer one.
    names = (*services, reflection.SERVICE_NAME)
    reflection.enable_server_reflection(names, server)
    handler = grpc.stream_stream_rpc_method_handler(
        reflection.aio.ReflectionServicer(names).ServerReflectionInfo,
        reflection_pb2.ServerReflectionRequest.FromString,
        reflection_pb2.ServerReflectionResponse.SerializeToString,
    )
    server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(_REFLECTION_V1, {_REFLECT: handler}),))
