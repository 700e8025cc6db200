"""The two forms in which a message travels: binary protobuf, and protojson."""

from __future__ import annotations

import json
import re
from functools import partial
from typing import TYPE_CHECKING, Any, Protocol

import msgspec
from google.protobuf import json_format

from weft_server.admission.message_limits import check_of
from weft_server.api import protojson
from weft_server.api.aside import aside
from weft_server.errors import InvalidRequest
from weft_server.transport.handlers import FIELD_BYTES, Parser

if TYPE_CHECKING:
    from weft_proto.v1.methods import Method

# Objects, lists and their members. A list of as many token ids as any model takes has half as many.
MAX_JSON_PARTS = 262_144
_PARTS = b"{[,"
_PART_COST = 32
_STRINGS = msgspec.json.Encoder()
# In the words of json_format.
_UNKNOWN = re.compile(r'no field named "([^"]*)" at "([^"]*)"')
# An empty list or text as a value. json_format takes it for a message without fields, too.
_EMPTY = re.compile(rb'[:\[,]\s*(?:\[\s*\]|"")')
# More JSON than this is read and written by a thread, so that no other request waits for it.
_SMALL_BYTES = 32 * 1024


class Codec(Protocol):
    """Reads the requests and writes the responses of one method."""

    def weigh(self, data: bytes) -> int:
        """Return about how many bytes of memory a message takes once it is parsed. Raises InvalidRequest."""

    async def parse(self, data: bytes) -> Any:
        """Return the message of bytes that were weighed. Raises InvalidRequest."""

    async def serialize(self, message: Any) -> bytes:
        """Return the bytes of a response."""


class ProtoCodec:
    """Binary protobuf, as gRPC has it."""

    def __init__(self, method: Method, max_bytes: int) -> None:
        deserialize = method.request.FromString
        self._parser = Parser(deserialize, max_bytes, check_of(deserialize))
        self.weigh = self._parser.weigh

    async def parse(self, data: bytes) -> Any:
        """Return the message of bytes that were weighed. Raises InvalidRequest."""
        return self._parser.parse(data)

    async def serialize(self, message: Any) -> bytes:
        """Return the bytes of a response."""
        return bytes(message.SerializeToString())


def num_json_parts(data: bytes) -> int:
    """Return how many objects, lists and further members JSON has at most. 0.6 ms for a megabyte, in one pass."""
    return len(data) - len(data.translate(None, _PARTS))


def json_cost(data: bytes) -> int:
    """Return as how many bytes of text JSON is read. An object or a member takes longer, where it has to be judged."""
    return len(data) + _PART_COST * num_json_parts(data)


class JsonCodec:
    """Protojson: https://protobuf.dev/programming-guides/json/. Fields that the contract does not know are refused.

    A message of it has the bounds that it has in binary.
    """

    def __init__(self, method: Method, max_bytes: int) -> None:
        self._kind, self._streams = method.request, method.streams
        self._bounds = ProtoCodec(method, max_bytes)

    def weigh(self, data: bytes) -> int:
        """Return about how many bytes of memory a message takes. Raises InvalidRequest for one of too many parts."""
        num_parts = num_json_parts(data)
        if num_parts > MAX_JSON_PARTS:
            raise InvalidRequest(
                "",
                f"the JSON has {num_parts:,} braces, brackets and commas, and may have {MAX_JSON_PARTS:,}; "
                "send it as application/proto",
                "MESSAGE_TOO_LARGE",
            )
        return len(data) + FIELD_BYTES * num_parts

    async def parse(self, data: bytes) -> Any:
        """Return the message of bytes that were weighed. Raises InvalidRequest."""
        return await aside(json_cost(data), partial(self._parse, data), _SMALL_BYTES)

    async def serialize(self, message: Any) -> bytes:
        """Return the bytes of a response."""
        if self._streams and message.WhichOneof("event") == "delta":
            return delta_to_json(message)
        return await aside(message.ByteSize(), partial(protojson.to_json, message), _SMALL_BYTES)

    def _parse(self, data: bytes) -> Any:
        try:
            message = protojson.parse(self._kind, data)
        except (protojson.NotPlain, ValueError, RecursionError):
            message = self._judged(data)
        # Its fields are counted as those of any message.
        self._bounds.weigh(message.SerializeToString())
        return message

    def _judged(self, data: bytes) -> Any:
        """What json_format says of JSON that is not plain. Raises InvalidRequest."""
        message = self._kind()
        try:
            json_format.Parse(data, message)
        except (json_format.ParseError, ValueError, RecursionError) as error:
            raise _malformed(error) from None
        if not data.lstrip().startswith(b"{"):  # a list without elements would be a message without fields
            raise InvalidRequest("", "the request is not a valid message: it is no JSON object", "MALFORMED_REQUEST")
        if _EMPTY.search(data):
            _check_objects(self._kind.DESCRIPTOR, json.loads(data), "")
        return message


def _check_objects(descriptor: Any, value: Any, path: str) -> None:
    """Raise InvalidRequest where a message of `descriptor` has another value than an object. It was parsed before."""
    if not isinstance(value, dict):
        raise InvalidRequest(path, "must be a JSON object", "MALFORMED_REQUEST")
    fields = {name: field for field in descriptor.fields for name in (field.name, field.json_name)}
    for name, inner in value.items():
        field = fields[name]
        if field.message_type and inner is not None:
            place = f"{path}.{name}".lstrip(".")
            for each in inner if field.is_repeated else [inner]:
                _check_objects(field.message_type, each, place)


def _malformed(error: Exception) -> InvalidRequest:
    if not isinstance(error, json_format.ParseError):
        return InvalidRequest("", "the request is not a valid message: it is no JSON", "MALFORMED_REQUEST")
    why = str(error).partition("\n")[0]
    # Then follows what it did not expect itself, such as a name that is no Unicode.
    if why.startswith("Failed to parse JSON: "):
        why = "its JSON is no such message"
    if unknown := _UNKNOWN.search(why):
        name, place = unknown.groups()
        path = ".".join([*place.split(".")[1:], name])
        return InvalidRequest(path, "is no field of this message", "MALFORMED_REQUEST")
    return InvalidRequest("", f"the request is not a valid message: {why}", "MALFORMED_REQUEST")


def delta_to_json(message: Any) -> bytes:
    """Return a message of a stream that has a TextDelta, as `protojson.to_json` would. That takes longer."""
    text = message.delta.text
    return b'{"delta":{"text":' + _STRINGS.encode(text) + b"}}" if text else b'{"delta":{}}'
