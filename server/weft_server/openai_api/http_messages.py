"""What stands around the mapping: who makes the calls of weft.v1, what came by HTTP, and what goes back."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, AsyncIterator, Callable

    from google.protobuf.message import Message

    from weft_proto.v1 import common_pb2

JSON = "application/json"
EVENT_STREAM = "text/event-stream"


class Caller(Protocol):
    """Makes the calls of one HTTP request. Each raises RequestError as the call by gRPC would."""

    async def unary(self, method: str, request: Message) -> Any:
        """Return the response of a unary method of weft.v1, such as `Generate`."""

    def stream(self, method: str, request: Message) -> AsyncIterator[Any]:
        """Return the responses of a streaming method, such as `StreamGenerate`."""


@dataclass(frozen=True, slots=True)
class HttpRequest:
    """One request as it came by HTTP.

    Attributes:
        caller: makes its calls.
        task_of: what the model that a selector means does; TASK_UNSPECIFIED where there is none.
        request_id: what `x-request-id` says, or what the server made. It goes back by the same header.
        body: what was sent, whole.
        content_type: what the header says.
        parameter: what stands in the place of `{...}` in the route's path.
    """

    caller: Caller
    task_of: Callable[[common_pb2.ModelSelector], common_pb2.Task.ValueType]
    request_id: str
    body: bytes = b""
    content_type: str = JSON
    parameter: str = ""


class HttpResponse(NamedTuple):
    """One answer that is sent at once."""

    body: bytes
    status: int = 200
    content_type: str = JSON
    headers: tuple[tuple[str, str], ...] = ()


@dataclass(slots=True)
class HttpStream:
    """One answer that comes in pieces: server-sent events. The first of them is there already.

    Attributes:
        chunks: whole events. Whoever stops early must close it. What it raises has been told to the client by an event.
    """

    chunks: AsyncGenerator[bytes]
    content_type: str = EVENT_STREAM
    # Proxies that buffer would hold tokens back.
    headers: tuple[tuple[str, str], ...] = field(default=(("cache-control", "no-cache"), ("x-accel-buffering", "no")))
