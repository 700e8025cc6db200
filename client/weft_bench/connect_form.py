"""The Connect protocol (https://connectrpc.com/docs/protocol), with messages in binary or as protojson."""

import json
import struct
from base64 import b64decode
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from google.protobuf import json_format
from google.protobuf.any_pb2 import Any as Packed
from google.protobuf.message import Message

from weft_bench.form import Failed
from weft_bench.record import Record
from weft_bench.workload import Method

_ENVELOPE = struct.Struct(">BI")
# The flag of a stream's last envelope.
_END = 2
# What an answer means that is no error of the protocol: https://connectrpc.com/docs/protocol#http-to-error-code
_CODES = {400: "INTERNAL", 401: "UNAUTHENTICATED", 403: "PERMISSION_DENIED", 404: "UNIMPLEMENTED"} | dict.fromkeys(
    (429, 502, 503, 504), "UNAVAILABLE"
)


def to_json(message: Message) -> bytes:
    """Return a message as protojson."""
    return json_format.MessageToJson(message, indent=None, ensure_ascii=False).encode()


def read_json(method: Method, data: bytes, record: Record) -> None:
    """Write down what a message says of tokens and times. `json` reads it ten times as fast as `json_format`."""
    answer = json.loads(data)
    if method.streams:
        answer = answer["final"] if "final" in answer else method.lacks_final()
    said = answer["completion"] if method.writes else answer
    usage, times = said.get("usage", {}), said.get("timings", {})
    record.input_tokens, record.output_tokens = (usage.get(name, 0) for name in ("inputTokens", "outputTokens"))
    record.queue, record.prefill, record.decode = (
        float(times.get(part, "0s").removesuffix("s")) for part in ("queue", "prefill", "decode")
    )
    record.ends_itself = said.get("finishReason") == "FINISH_REASON_STOP"


@dataclass(frozen=True)
class ConnectForm:
    """A form of the protocol. `name` is that in content types."""

    name: str
    write: Callable[[Message], bytes]
    read: Callable[[Method, bytes, Record], None]

    def path(self, method: Method) -> str:
        """Return where requests are posted."""
        return method.path

    def content_type(self, method: Method) -> str:
        """Return what a body is."""
        return f"application/{'connect+' if method.streams else ''}{self.name}"

    def payload(self, request: Message, method: Method) -> bytes:
        """Return the body of a request. That of a stream is one envelope."""
        data = self.write(request)
        return _ENVELOPE.pack(0, len(data)) + data if method.streams else data

    def reading(self, method: Method, note: Callable[[], None]) -> "_Unary | _Stream":
        """Return what reads an answer."""
        return _Stream(self, method, note) if method.streams else _Unary(self, method)


class _Unary:
    """A whole answer."""

    def __init__(self, form: ConnectForm, method: Method) -> None:
        self._form = form
        self._method = method
        self._body = b""

    def feed(self, data: bytes) -> None:
        """Take a piece of the body."""
        self._body += data

    def end(self, status: int, record: Record) -> None:
        """Write down what the answer says. Raises Failed."""
        if status != 200:
            raise failed(status, self._body)
        self._form.read(self._method, self._body, record)


class _Stream:
    """A stream of envelopes. Nothing in them is read but the last two: the final message, and the end."""

    def __init__(self, form: ConnectForm, method: Method, note: Callable[[], None]) -> None:
        self._form = form
        self._method = method
        self._note = note
        self._rest = b""
        self._last = b""
        self._end = b""

    def feed(self, data: bytes) -> None:
        """Take a piece of the body."""
        rest = self._rest + data if self._rest else data
        while len(rest) >= _ENVELOPE.size:
            flags, size = _ENVELOPE.unpack_from(rest)
            if len(rest) < (whole := _ENVELOPE.size + size):
                break
            message, rest = rest[_ENVELOPE.size : whole], rest[whole:]
            if flags & _END:
                self._end = message
            else:
                self._last = message
                self._note()
        self._rest = rest

    def end(self, status: int, record: Record) -> None:
        """Write down what the final message says. Raises Failed."""
        if status != 200:
            raise failed(status, self._rest)
        if not self._end:
            raise Failed("UNAVAILABLE", "the stream was cut off: it has no end")
        if error := json.loads(self._end).get("error"):
            raise _failed_by(error)
        self._form.read(self._method, self._last, record)


def failed(status: int, body: bytes) -> Failed:
    """Return what an answer with a status of HTTP says."""
    try:
        return _failed_by(json.loads(body))
    except (ValueError, KeyError, TypeError, AttributeError):  # a proxy's words
        return Failed(_CODES.get(status, "UNKNOWN"), f"status {status} of HTTP")


def _failed_by(error: dict[str, Any]) -> Failed:
    """What an error of the protocol says."""
    code = "CANCELLED" if error["code"] == "canceled" else error["code"].upper()
    details = [
        Packed(type_url=f"type.googleapis.com/{each['type']}", value=b64decode(each["value"] + "=="))
        for each in error.get("details", ())
    ]
    return Failed.of(code, error.get("message", ""), details)
