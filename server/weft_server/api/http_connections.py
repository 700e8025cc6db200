"""The connections of the HTTP port: how many there may be, and the end of those that take too long."""

from __future__ import annotations

import asyncio
import time
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Protocol

from weft_server.transport.sweep import Sweep

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from weft_server.api.http_messages import HttpRequest
    from weft_server.calls.call_gate import CallGate

SWEEP_S = 0.5


class _Connection(Protocol):
    """See `Connection`."""

    until: float
    peer: str

    def close(self) -> None: ...

    def abort(self) -> None: ...

    def comment_on_silence(self, now: float) -> None: ...


class HttpConnections:
    """One for a port. To be used on the event loop's thread.

    Attributes:
        answer: answers one request on its connection. It is cancelled when its caller goes.
        max_age_s: after which so is the next one, so that clients find new servers.
    """

    def __init__(
        self,
        answer: Callable[[HttpRequest, Any], Awaitable[None]],
        gate: CallGate,
        max_connections: int,
        max_age_s: float,
    ) -> None:
        self.answer = answer
        self.max_age_s = max_age_s
        self._gate = gate
        self._max = max_connections
        self._open: set[_Connection] = set()
        # Of these, those on which no request is answered, in the order in which that began.
        self._idle: dict[_Connection, None] = {}
        self._empty = asyncio.Event()
        self._empty.set()
        self._sweep = Sweep(self._look, self._open, SWEEP_S)

    @property
    def is_draining(self) -> bool:
        """Whether each response is the last one of its connection."""
        return self._gate.draining

    @property
    def peers(self) -> list[str]:
        """The other ends of those that are open."""
        return [connection.peer for connection in self._open]

    def add(self, connection: _Connection) -> bool:
        """Take a connection that has been accepted. Returns whether there is a place.

        If all are taken, the one that has been idle longest makes way.
        """
        if len(self._open) >= self._max:
            longest = next(iter(self._idle), None)
            if longest is None:
                return False
            self.discard(longest)
            longest.abort()
            self._gate.traffic.num_ended += 1
        self._open.add(connection)
        self._idle[connection] = None
        self._empty.clear()
        self._sweep.begin()
        return True

    def note_busy(self, connection: _Connection) -> None:
        """Note that a request of a connection is answered from now on."""
        self._idle.pop(connection, None)

    def note_idle(self, connection: _Connection) -> None:
        """Note that its answer has been sent."""
        if connection in self._open:
            self._idle[connection] = None

    def discard(self, connection: _Connection) -> None:
        """Forget a connection that has ended."""
        self._open.discard(connection)
        self._idle.pop(connection, None)
        if not self._open:
            self._empty.set()

    async def close(self, grace_s: float) -> None:
        """End all: those that answer nothing at once, others with their responses, within `grace_s` seconds."""
        for connection in list(self._open):
            connection.close()
        with suppress(TimeoutError):
            async with asyncio.timeout(grace_s):
                await self._empty.wait()
        for connection in list(self._open):
            connection.abort()

    def _look(self) -> None:
        now = time.monotonic()
        for connection in list(self._open):
            if connection.until < now:
                connection.abort()
            else:
                connection.comment_on_silence(now)
