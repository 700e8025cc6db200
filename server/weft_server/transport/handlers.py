"""Handlers of any service: they take bytes, refuse those that are no message, and give a refusal its status."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import grpc
import grpc.aio
from google.protobuf.message import DecodeError

from weft_server.errors import InvalidRequest

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from weft_server.models.request_context import RequestContext
    from weft_server.transport.outgoing import Outgoing
    from weft_server.transport.status import Status


# What a field of a message takes beside its bytes, once it is parsed: measured 70, and up to twice that.
FIELD_BYTES = 128


def behaviour_of(handler: Any) -> Any:
    """What a handler does with one request."""
    return handler.unary_stream if handler.response_streaming else handler.unary_unary


def refusing(why: Callable[[Any], Awaitable[Status]]) -> Any:
    """A handler that ends a call with the status that `why` gives, which takes the context.

    It reads no message and raises no error, so it costs little. It is one for a stream of messages. On the wire all
    kinds of calls begin alike.
    """

    async def refuse(_: Any, context: Any) -> None:
        status = await why(context)
        context.set_code(status.code)
        context.set_details(status.message)
        context.set_trailing_metadata(status.trailing_metadata)

    return grpc.stream_stream_rpc_method_handler(refuse)


class Parser:
    """From bytes to a message, of at most `most` bytes. Raises InvalidRequest for more, and for what is no message.

    `check` counts the fields. It raises InvalidRequest for bytes that must not be parsed, and DecodeError as
    `deserialize` does.
    """

    def __init__(
        self, deserialize: Callable[[bytes], Any], most: int, check: Callable[[bytes], int] | None = None
    ) -> None:
        self._deserialize = deserialize
        self._most = most
        self._check = check

    def read(self, data: bytes) -> Any:
        """Return the message of bytes that nobody weighs."""
        self.weigh(data)
        return self.parse(data)

    def weigh(self, data: bytes) -> int:
        """Return about how many bytes the message of these bytes takes. It is not parsed for that."""
        if len(data) > self._most:
            raise InvalidRequest(
                "",
                f"the request has {len(data)} bytes, and this method takes at most {self._most}",
                "MESSAGE_TOO_LARGE",
            )
        try:
            return len(data) + (FIELD_BYTES * self._check(data) if self._check else 0)
        except DecodeError:
            raise _malformed() from None

    def parse(self, data: bytes) -> Any:
        """Return the message of bytes that were weighed."""
        try:
            return self._deserialize(data)
        except DecodeError:
            raise _malformed() from None


def _malformed() -> InvalidRequest:
    return InvalidRequest(
        "", "the request is not a valid message: bad bytes, or text that is not UTF-8", "MALFORMED_REQUEST"
    )


async def sending(outgoing: Outgoing, call: RequestContext, context: Any, data: bytes) -> None:
    """Write a message, and wait for a slow reader. What is produced meanwhile joins the next message."""
    outgoing.begin(call, len(data))
    try:
        await context.write(data)
    except grpc.aio.InternalError as error:
        # The caller went during the wait. gRPC's own cancellation comes after this.
        raise asyncio.CancelledError from error
    finally:
        outgoing.end(call)


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
