"""OpenAI's completions: the only form in which `weft bench` asks them, for their prompts may be token ids."""

import json
from collections.abc import Callable
from typing import Any

from google.protobuf.any_pb2 import Any as Packed
from google.protobuf.message import Message
from google.rpc.error_details_pb2 import ErrorInfo

from weft.exceptions import InvalidRequest
from weft_bench.form import Failed
from weft_bench.record import Record
from weft_bench.workload import Method

_PATH = "/v1/completions"
# Their requests say no more than a text, a model and lengths.
_NAMES = {"Generate", "Translate"}
# OpenAI has no name for gRPC's statuses.
_CODES = {400: "INVALID_ARGUMENT", 401: "UNAUTHENTICATED", 403: "PERMISSION_DENIED", 404: "NOT_FOUND"} | {
    413: "INVALID_ARGUMENT",
    429: "RESOURCE_EXHAUSTED",
    503: "UNAVAILABLE",
    504: "DEADLINE_EXCEEDED",
}
# In a stream, whose status is always 200.
_STATUS_OF_TYPE = {"invalid_request_error": 400, "rate_limit_error": 429}
# A stream's events that hold no text, behind the others: how it ended, what it took, and that there are no more.
_NUM_LAST = 3


class OpenAiForm:
    """The form."""

    def path(self, method: Method) -> str:
        """Return where requests are posted. Raises InvalidRequest for a model that gives no completions."""
        if method.name not in _NAMES:
            raise InvalidRequest("--http openai: asks for completions, which the model does not give")
        return _PATH

    def content_type(self, method: Method) -> str:  # noqa: ARG002 - other forms have two
        """Return what a body is."""
        return "application/json"

    def payload(self, request: Message, method: Method) -> bytes:
        """Return the body of a request."""
        asked: Any = request.request if method.streams else request  # type: ignore[attr-defined] # see method
        body: dict[str, Any] = {
            "model": f"{asked.model.name}@{asked.model.version}" if asked.model.version else asked.model.name,
            "prompt": list(asked.token_ids.ids) if asked.HasField("token_ids") else asked.text,
        }
        for name in ("max_new_tokens", "min_new_tokens"):
            if asked.decoding.HasField(name):
                body[name.replace("new_", "")] = getattr(asked.decoding, name)
        if method.streams:
            body |= {"stream": True, "stream_options": {"include_usage": True}}
        return json.dumps(body).encode()

    def reading(self, method: Method, note: Callable[[], None]) -> "_Body | _Events":
        """Return what reads an answer."""
        return _Events(note) if method.streams else _Body()


class _Body:
    """A whole answer."""

    def __init__(self) -> None:
        self._body = b""

    def feed(self, data: bytes) -> None:
        """Take a piece of the body."""
        self._body += data

    def end(self, status: int, record: Record) -> None:
        """Write down what the answer says. Raises Failed."""
        answer = _parsed(self._body)
        if status != 200:
            raise _failed(status, answer)
        _write_down(answer, answer["choices"], record)


class _Events:
    """Events (https://html.spec.whatwg.org/multipage/server-sent-events.html). Few of them are read."""

    def __init__(self, note: Callable[[], None]) -> None:
        self._note = note
        self._rest = b""
        self._events: list[bytes] = []

    def feed(self, data: bytes) -> None:
        """Take a piece of the body."""
        *lines, self._rest = (self._rest + data).split(b"\n")
        for line in lines:
            if line.startswith(b"data: "):
                self._events = [*self._events[1 - _NUM_LAST :], line.removeprefix(b"data: ").rstrip()]
                self._note()

    def end(self, status: int, record: Record) -> None:
        """Write down what the last events say. Raises Failed."""
        if status != 200:
            raise _failed(status, _parsed(self._rest))
        last = _parsed(self._events[-1]) if self._events else {}
        if "error" in last or len(self._events) < _NUM_LAST or self._events[-1] != b"[DONE]":
            raise _failed(200, last)
        # They are one message, as the final one of weft.v1.
        del record.arrivals[1 - _NUM_LAST :]
        ended, used = map(_parsed, self._events[:2])
        _write_down(used, ended["choices"], record)


def _parsed(data: bytes) -> dict[str, Any]:
    """An object of JSON, or nothing."""
    try:
        found = json.loads(data)
    except ValueError:
        return {}
    return found if isinstance(found, dict) else {}


def _write_down(answer: dict[str, Any], choices: list[dict[str, Any]], record: Record) -> None:
    usage = answer["usage"]
    record.input_tokens, record.output_tokens = usage["prompt_tokens"], usage["completion_tokens"]
    record.ends_itself = choices[0]["finish_reason"] == "stop"


def _failed(status: int, body: dict[str, Any]) -> Failed:
    if "error" not in body:
        cut_off = "the stream was cut off: it has no end"
        return Failed("UNAVAILABLE", cut_off if status == 200 else f"status {status} of HTTP")
    error = body["error"]
    status = _STATUS_OF_TYPE.get(error["type"], 500) if status == 200 else status
    packed = Packed()
    packed.Pack(ErrorInfo(reason=(error["code"] or "").upper()))
    return Failed.of(_CODES.get(status, "INTERNAL"), error["message"], [packed])
