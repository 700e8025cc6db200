"""The methods of weft.v1 by the Connect protocol: https://connectrpc.com/docs/protocol.

    curl localhost:8000/weft.v1.ClassificationService/Classify -H 'content-type: application/json' -d '{"text": "..."}'

A unary method takes and gives a message. A streaming one takes one message in an envelope, and gives envelopes. Nothing
is compressed. Only POST is answered.
"""

from __future__ import annotations

import json
import struct
from base64 import b64encode
from contextlib import aclosing
from functools import lru_cache, partial
from typing import TYPE_CHECKING, Any

from google.protobuf import json_format
from google.rpc import error_details_pb2

from weft_proto.v1.methods import METHODS
from weft_server.admission.message_limits import max_bytes
from weft_server.api.codecs import JsonCodec, ProtoCodec
from weft_server.api.connect_operations import describe_method
from weft_server.api.http_messages import JSON, HttpResponse, HttpStream, Route
from weft_server.api.refusal import Refused
from weft_server.errors import CannotDecompress, InvalidRequest

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Iterable, Iterator

    from weft_proto.v1.methods import Method
    from weft_server.api.caller import Caller
    from weft_server.api.codecs import Codec
    from weft_server.api.http_messages import HttpRequest, Response
    from weft_server.api.refusal import Refusal

VERSION_KEY = "connect-protocol-version"
UNARY, STREAM = "application/", "application/connect+"
ENVELOPE = struct.Struct(">BI")
# The reason of a refusal.
_WRONG_TYPE = "WRONG_CONTENT_TYPE"
# Flags of an envelope.
COMPRESSED, END = 1, 2
# What may be packed in an error's details: json_format knows these when they are imported.
_DETAILS = {each.DESCRIPTOR.full_name: each for each in (error_details_pb2.ErrorInfo, error_details_pb2.BadRequest)}


def connect_routes(services: Iterable[str], max_request_bytes: int) -> Iterator[Route]:
    """Yield a route for each method of some services. A message has at most `max_request_bytes`."""
    for method in METHODS.values():
        if method.service in services:
            most = max_bytes(method.path, max_request_bytes)
            codecs: dict[str, Codec] = {"json": JsonCodec(method, most), "proto": ProtoCodec(method, most)}
            answering = _Streaming(method, codecs) if method.streams else _Unary(method, codecs)
            yield Route(
                "POST",
                method.path,
                method,
                most + ENVELOPE.size,
                answering.weigh,
                answering.answer,
                answering.refuse,
                partial(describe_method, method),
            )


class _Unary:
    """A unary method."""

    _prefix = UNARY

    def __init__(self, method: Method, codecs: dict[str, Codec]) -> None:
        self._method = method
        self._codecs = {f"{self._prefix}{name}": codec for name, codec in codecs.items()}

    def weigh(self, request: HttpRequest, data: bytes) -> int:
        """Weigh a body. Raises InvalidRequest, and CannotDecompress."""
        codec = self._codecs.get(_media_type(request))
        if codec is None:
            raise InvalidRequest("content-type", f"must be {' or '.join(self._codecs)}", _WRONG_TYPE)
        _check_headers(request)
        return codec.weigh(self._message_in(data))

    async def answer(self, request: HttpRequest, caller: Caller) -> Response:
        """Answer a request. Raises Refused and RequestError."""
        media_type = _media_type(request)
        codec = self._codecs[media_type]
        message = await codec.parse(self._message_in(request.body))
        request.body = b""
        return await self._respond(codec, media_type, message, caller)

    def refuse(self, request: HttpRequest, refusal: Refusal) -> Response:  # noqa: ARG002 - a stream's differs
        """Return the response of a refusal."""
        response = refuse_unary(refusal)
        if refusal.reason == _WRONG_TYPE:
            response.status = 415
            response.headers += (("accept-post", ", ".join(self._codecs)),)
        return response

    async def _respond(self, codec: Codec, media_type: str, message: Any, caller: Caller) -> Response:
        response = await caller.unary(self._method, message)
        return HttpResponse(200, await codec.serialize(response), media_type)

    def _message_in(self, body: bytes) -> bytes:
        return body


class _Streaming(_Unary):
    """A method that answers with a stream."""

    _prefix = STREAM

    def refuse(self, request: HttpRequest, refusal: Refusal) -> Response:
        """Return the response of a refusal: its status is in the stream's end."""
        media_type = _media_type(request)
        if media_type not in self._codecs:
            return super().refuse(request, refusal)
        return HttpResponse(200, _end_of_stream(refusal), media_type)

    async def _respond(self, codec: Codec, media_type: str, message: Any, caller: Caller) -> Response:
        # Its head, which goes first, has the name.
        caller.name(message.request.request_id)
        return HttpStream(media_type, self._envelopes(codec, message, caller))

    async def _envelopes(self, codec: Codec, message: Any, caller: Caller) -> AsyncGenerator[bytes]:
        try:
            async with aclosing(caller.stream(self._method, message)) as responses:
                async for response in responses:
                    yield _envelope(0, await codec.serialize(response))
        except Refused as refused:
            yield _end_of_stream(refused.refusal)
        else:
            yield _envelope(END, b"{}")

    def _message_in(self, body: bytes) -> bytes:
        """The message in the one envelope of a body."""
        if not body:
            raise InvalidRequest("", "the call has no message", "NO_MESSAGE")
        if len(body) < ENVELOPE.size:
            raise _malformed("its envelope is not whole")
        flags, size = ENVELOPE.unpack_from(body)
        if flags & COMPRESSED:
            raise CannotDecompress
        if flags or size != len(body) - ENVELOPE.size:
            raise _malformed("a body has one envelope, with the flags 0 and the size of its message")
        return body[ENVELOPE.size :]


def refuse_unary(refusal: Refusal) -> HttpResponse:
    """Return the response of a refusal, as a unary method has it."""
    return HttpResponse(refusal.http_status, _error_json(refusal), JSON, refusal.headers)


# A flood gets the same few refusals again and again.
@lru_cache(64)
def _error_json(refusal: Refusal) -> bytes:
    return json.dumps(_error(refusal)).encode()


@lru_cache(64)
def _end_of_stream(refusal: Refusal) -> bytes:
    end: dict[str, Any] = {"error": _error(refusal)}
    if headers := refusal.headers:
        end["metadata"] = {name: [value] for name, value in headers}
    return _envelope(END, json.dumps(end).encode())


def _error(refusal: Refusal) -> dict[str, Any]:
    details = [_detail(packed) for packed in refusal.unpacked()]
    # The one name of two spellings.
    code = "canceled" if refusal.code == "CANCELLED" else refusal.code.lower()
    return {"code": code, "message": refusal.message, "details": details}


def _detail(packed: Any) -> dict[str, Any]:
    name = packed.TypeName()
    detail = {"type": name, "value": b64encode(packed.value).decode().rstrip("=")}
    # For people: clients read the value.
    if kind := _DETAILS.get(name):
        detail["debug"] = json_format.MessageToDict(kind.FromString(packed.value))
    return detail


def _envelope(flags: int, data: bytes) -> bytes:
    return ENVELOPE.pack(flags, len(data)) + data


def _media_type(request: HttpRequest) -> str:
    return _without_parameters(request.header("content-type"))


# Nearly all send the same few.
@lru_cache(64)
def _without_parameters(content_type: str) -> str:
    return content_type.partition(";")[0].strip().lower()


def _check_headers(request: HttpRequest) -> None:
    version = request.header(VERSION_KEY)
    if version not in {"", "1"}:
        raise InvalidRequest(VERSION_KEY, "must be 1")
    for name in ("content-encoding", "connect-content-encoding"):
        if request.header(name).lower() not in {"", "identity"}:
            raise CannotDecompress


def _malformed(why: str) -> InvalidRequest:
    return InvalidRequest("", f"the request is not a valid message: {why}", "MALFORMED_REQUEST")


def refuse_unknown(request: HttpRequest, refusal: Refusal) -> Response:
    """Return the response of what has no route, or of who may not know whether it has.

    What it asks for as, and not what it asks for, says whether that is a stream's end.
    """
    media_type = _media_type(request)
    if refusal.code == "UNAUTHENTICATED" and media_type in {f"{STREAM}json", f"{STREAM}proto"}:
        return HttpResponse(200, _end_of_stream(refusal), media_type)
    response = refuse_unary(refusal)
    if refusal.code == "UNIMPLEMENTED":
        response.status = 404
    return response
