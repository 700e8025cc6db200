"""The first request of a cell on the wire: its message but for the last byte, or all of it and no answer read."""

import socket
import struct
from contextlib import suppress
from http.client import HTTPResponse

import grpc
from asking import plain, request_of, verb
from cells import TASKS
from http_asking import bytes_of, read

from raw_http2 import RawCaller, framed

_CODES = {code.value[0]: code.name for code in grpc.StatusCode}
UNREAD = ("cancel", "client killed", "deadline", "drain")
# Before a message of gRPC: whether it is compressed, and its length.
_PREFIX = 5
TIMEOUT_S = 2
# On, and zero seconds: who closes waits for nothing, and its other end sees a reset.
_NO_LINGER = struct.pack("ii", 1, 0)


def wired(server, cell):
    """A call in its stage, on a connection of its own."""
    return (GrpcWired if cell.port == "gRPC" else HttpWired)(server, cell)


class _Wired:
    """What both have: the counts of calls that ended, under the model of this one."""

    gauge = "weft_messages_receiving"

    def __init__(self, server, cell):
        self.server, self.cell = server, cell
        # Under which its end is counted: none, if its message never came whole.
        self.model = "" if cell.stage == "receiving" and cell.fault in UNREAD else TASKS[cell.task].model
        self._before = server.ended(self.model)
        waiting = server.metric(self.gauge)
        self._begin()
        server.wait_until(
            lambda: server.metric(self.gauge) > waiting or self._is_counted(), what=f"one more of {self.gauge}"
        )

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.socket.close()

    def counted(self):
        """Wait until the server has counted its end: (status code, no answer)."""
        self.server.wait_until(self._is_counted, what="its end")
        return next(iter(self._ended())), None

    def cancelled(self):
        """Its caller gives it up: as `counted`."""
        self._cancel()
        return self.counted()

    def killed(self):
        """Its connection is closed: as `counted`."""
        self.socket.close()
        return self.counted()

    def _is_counted(self):
        return bool(self._ended())

    def _ended(self):
        return self.server.ended(self.model) - self._before


class GrpcWired(_Wired):
    """A call by gRPC."""

    def __init__(self, server, cell):
        self._receives = cell.stage == "receiving"
        self.raw = RawCaller(server.target, window=None if self._receives else 0)
        self.raw.reads = self._receives
        self.socket = self.raw.socket
        if not self._receives:
            self.gauge = "weft_answers_sending"
        super().__init__(server, cell)

    def _begin(self):
        cell = self.cell
        path, _, self._response = verb(cell.task, cell.kind)
        self._data = framed(request_of(cell.task, 0, cell.kind, is_bad=cell.fault == "bad input").SerializeToString())
        timeout = [("grpc-timeout", f"{TIMEOUT_S}S")] if cell.fault == "deadline" else []
        self.stream = self.raw.open(path, headers=timeout)
        self.raw.send(self.stream, self._data[:-1] if self._receives else self._data, end=not self._receives)

    def finish(self):
        """Send what is left and read the answer: (status code, the answer's bytes but for times and ids)."""
        if self._receives:
            self.raw.send(self.stream, self._data[-1:], end=True)
        while self.stream not in self.raw.ended and not self.raw.closed:
            if not self._receives:
                self.raw.read_on(self.stream, 60_000)
            self.raw.pump(0.01)
        code = _CODES[self.raw.status(self.stream)[0]]
        return code, plain(self._messages()) if code == "OK" else None

    def _cancel(self):
        self.raw.reset(self.stream)

    def _messages(self):
        data, messages = self.raw.data[self.stream], []
        while data:
            end = _PREFIX + int.from_bytes(data[1:_PREFIX], "big")
            messages.append(self._response.FromString(data[_PREFIX:end]))
            data = data[end:]
        return messages


class HttpWired(_Wired):
    """A call by HTTP whose body has not come whole."""

    def _begin(self):
        cell, (host, _, port) = self.cell, self.server.api.rpartition(":")
        timeout_s = TIMEOUT_S if cell.fault == "deadline" else None
        data = bytes_of(cell, is_bad=cell.fault == "bad input", timeout_s=timeout_s)
        self._last = data[-1:]
        self.socket = socket.create_connection((host, int(port)))
        self.socket.sendall(data[:-1])

    def finish(self):
        """Send the last byte and read the answer: (status code, the answer but for times and ids)."""
        with suppress(OSError):  # it was answered already, and the connection has ended
            self.socket.sendall(self._last)
        http = HTTPResponse(self.socket)
        http.begin()
        code, _, answer = read(self.cell, http)
        return code, answer

    def _cancel(self):
        self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _NO_LINGER)
        self.socket.close()


# What befalls it, by fault: (status code, the answer or None).
ON_THE_WIRE = {
    "ok": lambda first: first.finish(),
    "bad input": lambda first: first.finish(),
    "cancel": _Wired.cancelled,
    "client killed": _Wired.killed,
    "deadline": _Wired.counted,
}
