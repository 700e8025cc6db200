"""Requests and responses of HTTP as routes see them, the table's rows, and a response's head on the wire."""

from __future__ import annotations

import time
from dataclasses import dataclass
from email.utils import formatdate
from functools import lru_cache
from http import HTTPStatus
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping, Sequence

    from weft_proto.v1.methods import Method
    from weft_server.api.caller import Caller
    from weft_server.api.refusal import Refusal
    from weft_server.api.request_body import RequestBody

JSON = "application/json"
# What the last part of a path is called, where a route takes any.
LAST_PART = "model"
CONTINUE = b"HTTP/1.1 100 Continue\r\n\r\n"
# Of those that http has no phrase for.
_PHRASES = {499: "Client Closed Request"}


@dataclass(slots=True)
class HttpRequest:
    """One request, once its headers have come.

    Attributes:
        method: such as POST.
        path: as it was sent, without the query. It begins with a slash.
        query: what stands behind the question mark.
        headers: as they came. Names are in lower case. A name may come twice.
        fields: the same by name, the last one of each.
        peer: the connection, as gRPC spells its other end.
        certificate: that of the caller as `ssl` gives it, or None.
        incoming: its body, until it has come whole.
        body: its body, once it has come whole.
    """

    method: str
    path: str
    query: str
    headers: list[tuple[str, str]]
    peer: str
    certificate: Mapping[str, Any] | None
    incoming: RequestBody
    fields: dict[str, str]
    body: bytes = b""

    def header(self, name: str) -> str:
        """Return the value of a header, by its name in lower case. Of several, the last. Empty if there is none."""
        return self.fields.get(name, "")


@dataclass(slots=True)
class HttpResponse:
    """A response that is there as a whole. `headers` are those beside its type and length."""

    status: int
    body: bytes = b""
    content_type: str = JSON
    headers: tuple[tuple[str, str], ...] = ()


@dataclass(slots=True)
class HttpStream:
    """A response that comes in chunks, with the status 200.

    The generator renders what goes wrong by itself: its status has been sent. If it raises, the connection is ended,
    and the caller sees a response that is not whole. `comment` is sent while nothing comes; empty: nothing is.
    """

    content_type: str
    chunks: AsyncGenerator[bytes]
    headers: tuple[tuple[str, str], ...] = ()
    comment: bytes = b""


if TYPE_CHECKING:
    Response = HttpResponse | HttpStream
    # Takes the request with its body. Raises RequestError, or Refused of a call that it made.
    Handler = Callable[[HttpRequest, Caller], Awaitable[Response]]


class Operation(NamedTuple):
    """What a route does, for who reads /openapi.json: https://spec.openapis.org/oas/v3.1.1#operation-object.

    Attributes:
        group: what it belongs to, such as TranslationService.
        about: the operation.
        schemas: those that it refers to, by name.
        group_says: a sentence about the group.
    """

    group: str
    about: dict[str, Any]
    schemas: dict[str, Any]
    group_says: str


@dataclass(frozen=True, slots=True)
class Route:
    """A row of the table.

    Attributes:
        method: of HTTP.
        path: without a query. It is compared as it is.
        rpc: the method of weft.v1 by which a request is judged before its body is read: which models may answer it, and
            how it is counted if it is refused then. The caller's first call may be another one.
        max_bytes: of the body.
        weigh: returns about how many bytes of memory a body takes once it is parsed. Raises InvalidRequest.
        answer: answers.
        refuse: makes the response of what is refused, also before the body is read.
        describe: says what it does. None: it is another path of what is told already.
        is_open: whether strangers may have it too.
        takes_priority: whether a body may ask for a class.
    """

    method: str
    path: str
    rpc: Method
    max_bytes: int
    weigh: Callable[[HttpRequest, bytes], int]
    answer: Handler
    refuse: Callable[[HttpRequest, Refusal], Response]
    describe: Callable[[], Operation] | None
    is_open: bool = False
    takes_priority: bool = False


def head_of(
    status: int, content_type: str, headers: Sequence[tuple[str, str]], length: int | None, *, ends: bool
) -> bytes:
    """Return the head of a response.

    `length` is that of the body, -1 for chunks, or None if the connection's end says it. `ends`: whether the connection
    ends after it. The values of headers are ours, or printable: none has a line break.
    """
    lines = [_first_line(status), _date(int(time.time()))]
    lines += [f"content-type: {content_type}\r\n"] if content_type else []
    lines += [f"{name}: {value}\r\n" for name, value in headers]
    if length is not None:
        lines.append("transfer-encoding: chunked\r\n" if length < 0 else f"content-length: {length}\r\n")
    lines.append("connection: close\r\n\r\n" if ends else "\r\n")
    return "".join(lines).encode("latin-1")


@lru_cache
def _first_line(status: int) -> str:
    return f"HTTP/1.1 {status} {_PHRASES.get(status) or HTTPStatus(status).phrase}\r\n"


@lru_cache(1)
def _date(second: int) -> str:
    return f"date: {formatdate(second, usegmt=True)}\r\n"
