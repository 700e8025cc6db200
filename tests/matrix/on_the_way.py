"""The first request of a cell on the wire: its message but for the last byte, or all of it and no answer read."""

import grpc
from asking import plain, request_of, verb
from cells import TASKS

from raw_http2 import RawCaller, framed

_CODES = {code.value[0]: code.name for code in grpc.StatusCode}
UNREAD = ("cancel", "client killed", "deadline", "drain")
# Before a message of gRPC: whether it is compressed, and its length.
_PREFIX = 5


class Wired:
    """A call in its stage, on a connection of its own."""

    def __init__(self, server, cell):
        self.server, self.cell = server, cell
        # Under which its end is counted: none, if its message never came whole.
        self.model = "" if cell.stage == "receiving" and cell.fault in UNREAD else TASKS[cell.task].model
        self._receives = cell.stage == "receiving"
        self.raw = RawCaller(server.target, window=None if self._receives else 0)
        self.raw.reads = self._receives
        self._before = server.ended(self.model)
        path, _, self._response = verb(cell.task, cell.kind)
        self._data = framed(request_of(cell.task, 0, cell.kind, is_bad=cell.fault == "bad input").SerializeToString())
        gauge = "weft_messages_receiving" if self._receives else "weft_answers_sending"
        waiting = server.metric(gauge)
        self.stream = self.raw.open(path, headers=[("grpc-timeout", "2S")] if cell.fault == "deadline" else [])
        self.raw.send(self.stream, self._data[:-1] if self._receives else self._data, end=not self._receives)
        server.wait_until(lambda: server.metric(gauge) > waiting or self._is_counted(), what=f"one more of {gauge}")

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.raw.socket.close()

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

    def counted(self):
        """Wait until the server has counted its end: (status code, no answer)."""
        self.server.wait_until(self._is_counted, what="its end")
        return next(iter(self._ended())), None

    def _is_counted(self):
        return bool(self._ended())

    def _ended(self):
        return self.server.ended(self.model) - self._before

    def _messages(self):
        data, messages = self.raw.data[self.stream], []
        while data:
            end = _PREFIX + int.from_bytes(data[1:_PREFIX], "big")
            messages.append(self._response.FromString(data[_PREFIX:end]))
            data = data[end:]
        return messages


def cancel(first):
    """Its caller resets the stream."""
    first.raw.reset(first.stream)
    return first.counted()


def client_killed(first):
    """Its connection is closed."""
    first.raw.socket.close()
    return first.counted()


# What befalls it, by fault: (status code, the answer or None).
ON_THE_WIRE = {
    "ok": Wired.finish,
    "bad input": Wired.finish,
    "cancel": cancel,
    "client killed": client_killed,
    "deadline": Wired.counted,
}
