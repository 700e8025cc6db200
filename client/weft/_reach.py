"""What a client knows of its servers, from all its calls."""

import time
from typing import Any

from weft._status import error_of, watch_failed
from weft.exceptions import Cancelled, Error, InternalError, Overloaded

# Where a server's health can't be watched, requests go to all servers for so long. Then the watch has another chance.
_UNWATCHED_S = 5.0


class Reach:
    """Whether there was a server, and whether the client is closed. Threads may share it.

    `answered` is set once a server has said something. Whoever asks many things then waits for it, if it goes away.
    """

    def __init__(self, target: str) -> None:
        self.target = target
        self._unwatched_until = 0.0
        self.answered = False
        self.closed = False

    @property
    def passes_by(self) -> bool:
        """Whether requests are to pass servers by whose health says so."""
        return not self._unwatched_until or time.monotonic() >= self._unwatched_until

    def check_open(self) -> None:
        """Raise Error, if the client is closed."""
        if self.closed:
            raise Error("the client is closed: make another one", reason="CLIENT_CLOSED")

    def heard(self, message: Any) -> Any:
        """Give a server's message. Raise InternalError, if gRPC could not read it: then it is None."""
        if message is None:
            raise InternalError(f"{self.target}: the answer cannot be read: is it a Weft server, of this version?")
        self.answered = True
        return message

    def error(self, call: Any) -> Error:
        """Give the exception for a call, or a grpc.RpcError, that did not end well."""
        if watch_failed(call):
            self._unwatched_until = time.monotonic() + _UNWATCHED_S
            self.answered = True
        error = error_of(call, self.target)
        if isinstance(call, BaseException):
            error.__cause__ = call
        # Who gives a reason is a server, but for what we say of TLS.
        self.answered |= isinstance(error, Overloaded) or error.reason not in {"", "TLS"}
        return error

    def is_of_a_server(self, error: Error) -> bool:
        """Whether a server cancelled a call, and not we by closing the client."""
        return isinstance(error, Cancelled) and not self.closed
