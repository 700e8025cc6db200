"""Handlers of any service: bytes that are no message are refused, a refusal gets its status, and no request is kept."""

from __future__ import annotations

import asyncio
from functools import lru_cache
from typing import TYPE_CHECKING, Any

import grpc
import grpc.aio
from google.protobuf.message import DecodeError

from weft_server.door.status import to_status
from weft_server.errors import InvalidRequest, RequestError

if TYPE_CHECKING:
    from collections.abc import Callable

    from weft_server.door.status import Status


class _Malformed:
    """What the deserializer gives for bytes that are no such message. Raising would look like a bug of ours."""


def behaviour_of(handler: Any) -> Any:
    """What a handler does with one request."""
    return handler.unary_stream if handler.response_streaming else handler.unary_unary


def with_behaviour(handler: Any, behaviour: Any) -> Any:
    """A handler like `handler` that does `behaviour`, and whose deserializer never fails."""
    make = grpc.unary_stream_rpc_method_handler if handler.response_streaming else grpc.unary_unary_rpc_method_handler
    return make(behaviour, _total(handler.request_deserializer), handler.response_serializer)


def answering(behaviour: Any) -> Any:
    """Give a status to the refusals of a behaviour that answers one request. Nothing is counted."""

    async def answer(request: Any, context: Any) -> Any:
        try:
            check_message(request)
            return await behaviour(request, context)
        except RequestError as error:
            await abort(context, to_status(error))
            let_go(error)

    return answer


@lru_cache(64)
def refusing(status: Status) -> Any:
    """A handler that ends every call with `status`. It reads no message and raises no error, so it costs little.

    On the wire nobody sees that it takes a stream: a call that ends before its first answer looks the same.
    """

    async def refuse(_: Any, context: Any) -> None:
        context.set_code(status.code)
        context.set_details(status.message)
        context.set_trailing_metadata(status.trailing_metadata)

    return grpc.stream_stream_rpc_method_handler(refuse)


def reflecting(handler: Any) -> Any:
    """Do as `answering` for reflection, whose requests come as a stream."""

    async def checked(requests: Any) -> Any:
        async for request in requests:
            check_message(request)
            yield request

    async def answer(requests: Any, context: Any) -> Any:
        try:
            async for response in handler.stream_stream(checked(requests), context):
                yield response
        except RequestError as error:
            await abort(context, to_status(error))
            let_go(error)

    return grpc.stream_stream_rpc_method_handler(
        answer, _total(handler.request_deserializer), handler.response_serializer
    )


def check_message(request: Any) -> None:
    """Raise InvalidRequest for bytes that were no message of their method's kind."""
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


async def write(context: Any, response: Any) -> None:
    """Write a response, and wait for a slow reader. What is produced meanwhile joins the next message."""
    try:
        await context.write(response)
    except grpc.aio.InternalError as error:
        # The caller went during the wait. gRPC's own cancellation comes after this.
        raise asyncio.CancelledError from error


async def abort(context: Any, status: Status) -> None:
    """Send a status that is not OK. gRPC keeps the error that `abort` raises, so it must hold no frame of ours."""
    try:
        await context.abort(status.code, status.message, status.trailing_metadata)
    except grpc.aio.AbortError as aborted:
        let_go(aborted)


def let_go(error: BaseException) -> None:
    """Drop the frames of an error, and of the errors that it came from.

    Frames hold the request and what was made of it. gRPC and a sequence's reply keep the error. With it they would keep
    the frames, until the garbage collector comes.
    """
    errors: list[BaseException | None] = [error]
    while errors:
        if last := errors.pop():
            errors += (last.__cause__, last.__context__)
            last.__traceback__ = last.__cause__ = last.__context__ = None
