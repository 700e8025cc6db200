"""Calls of the matrix by HTTP: the bytes of each request, and how it ended in gRPC's words."""

import base64
import json
import socket
import struct
import threading
from http.client import HTTPException, HTTPResponse

from asking import FILES, TEXTS, file_of, plain, request_of, verb
from cells import TASKS
from google.rpc import error_details_pb2

_ENVELOPE = struct.Struct(">BI")
_END = 2
# By OpenAI's code, where an error is within a stream; else by HTTP's status.
_OF_REASON = {"step_failed": "INTERNAL", "explain_failed": "INTERNAL", "deadline": "DEADLINE_EXCEEDED"}
_OF_STATUS = {400: "INVALID_ARGUMENT", 500: "INTERNAL", 503: "UNAVAILABLE", 504: "DEADLINE_EXCEEDED"}


def bytes_of(cell, number=0, *, is_bad=False, timeout_s=None):
    """A cell's request, with the input of a number."""
    make = _by_connect if cell.port == "Connect" else _by_openai
    path, kind, body = make(cell, number, is_bad=is_bad)
    lines = [f"POST {path} HTTP/1.1", "host: localhost", f"content-type: {kind}", f"content-length: {len(body)}"]
    lines += [f"connect-timeout-ms: {int(1000 * timeout_s)}"] if timeout_s else []
    return "\r\n".join([*lines, "", ""]).encode() + body


def _by_connect(cell, number, *, is_bad):
    explains = cell.stage == "explaining"
    message = request_of(cell.task, number, cell.kind, explains=explains, is_bad=is_bad).SerializeToString()
    path, _, _ = verb(cell.task, cell.kind)
    if cell.kind == "unary":
        return path, "application/proto", message
    return path, "application/connect+proto", _ENVELOPE.pack(0, len(message)) + message


def _by_openai(cell, number, *, is_bad):
    task = cell.task
    fields = {"model": TASKS[task].model}
    text = "" if is_bad else TEXTS.get(task, ("",) * 4)[number]
    if task == "embed":
        return "/v1/embeddings", "application/json", json.dumps(fields | {"input": [text]}).encode()
    if cell.kind == "stream":
        fields["stream"] = True
    if task == "transcribe":
        return (
            "/v1/audio/transcriptions",
            "multipart/form-data; boundary=B",
            _form(fields, file_of(task, number, is_bad=is_bad)),
        )
    fields["max_tokens"] = 12
    if cell.stage == "explaining":
        fields["explain"] = True
    if task == "generate":
        return "/v1/completions", "application/json", json.dumps(fields | {"prompt": text}).encode()
    content = [{"type": "text", "text": TEXTS[task][number]}] if task == "answer" else []
    if task in FILES:
        data = base64.b64encode(file_of(task, number, is_bad=is_bad)).decode()
        content.append({"type": "image_url", "image_url": {"url": f"data:image/png;base64,{data}"}})
    messages = [{"role": "user", "content": content or text}]
    return "/v1/chat/completions", "application/json", json.dumps(fields | {"messages": messages}).encode()


def _form(fields, file):
    parts = [(f'name="{name}"', str(value).lower().encode()) for name, value in fields.items()]
    parts.append(('name="file"; filename="a.wav"', file))
    said = [b"--B\r\nContent-Disposition: form-data; %s\r\n\r\n%s\r\n" % (h.encode(), v) for h, v in parts]
    return b"".join(said) + b"--B--\r\n"


def read(cell, http):
    """What a response says: (status code, reason, the answer but for times and ids)."""
    body = http.read()
    if cell.port == "OpenAI":
        return _read_openai(http, body)
    if cell.kind == "unary" or http.headers["content-type"] == "application/json":
        if http.status != 200:
            return (*_error(json.loads(body)), None)
        return "OK", "", plain([verb(cell.task, cell.kind)[2].FromString(body)])
    messages = []
    while body:
        flags, size = _ENVELOPE.unpack_from(body)
        data, body = body[_ENVELOPE.size : _ENVELOPE.size + size], body[_ENVELOPE.size + size :]
        if flags == _END:
            error = json.loads(data).get("error")
            return (*_error(error), None) if error else ("OK", "", plain(messages))
        messages.append(verb(cell.task, cell.kind)[2].FromString(data))
    raise AssertionError("a stream without an end")


def _error(error):
    value = error["details"][0]["value"]
    info = error_details_pb2.ErrorInfo.FromString(base64.b64decode(value + "=" * (-len(value) % 4)))
    return error["code"].upper(), info.reason


def _read_openai(http, body):
    if http.status != 200:
        return _OF_STATUS[http.status], json.loads(body)["error"]["code"], None
    if not http.headers["content-type"].startswith("text/event-stream"):
        return "OK", "", _without_ids(json.loads(body))
    events = [line.removeprefix("data: ") for line in body.decode().split("\n\n") if line.startswith("data: ")]
    if events[-1] != "[DONE]":
        last = json.loads(events[-1])
        if "error" in last:
            return _OF_REASON[last["error"]["code"]], last["error"]["code"], None
    return "OK", "", _text_of([json.loads(each) for each in events if each != "[DONE]"])


def _without_ids(answer):
    return {key: value for key, value in answer.items() if key not in {"id", "created", "timings"}}


def _text_of(events):
    """The text that a stream's events make."""
    text = ""
    for each in events:
        for choice in each.get("choices", ()):
            text += choice.get("text") or (choice.get("delta") or {}).get("content") or ""
        text += each.get("delta", "") if each.get("type") == "transcript.text.delta" else ""
    return text


class HttpAsked:
    """As `Asked`, by HTTP: a call on a connection of its own."""

    def __init__(self, server, cell, request, *, reads=True):
        self._cell, self._ended = cell, None
        host, _, port = server.api.rpartition(":")
        self.call = self
        self._socket = socket.create_connection((host, int(port)))
        self._socket.sendall(request)
        self._reads = threading.Event()
        if reads:
            self._reads.set()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self):
        self._reads.wait(120)
        try:
            http = HTTPResponse(self._socket)
            http.begin()
            self._ended = read(self._cell, http)
        except (OSError, HTTPException):
            self._ended = "CANCELLED", "", None
        finally:
            self._socket.close()

    def cancel(self):
        """Its caller goes."""
        self._socket.shutdown(socket.SHUT_RDWR)

    def pause(self):
        """It has read nothing yet."""

    def go_on(self):
        """Read."""
        self._reads.set()

    @property
    def is_over(self):
        """Whether it has ended."""
        return not self._thread.is_alive()

    def end(self):
        """(status code, reason, the answer but for times and ids)."""
        self._thread.join(60)
        assert self.is_over, "a call has no end"
        return self._ended
