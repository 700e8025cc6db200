"""Takes the connections that come to a port. Each has its place, or none, before TLS begins with it."""

from __future__ import annotations

import asyncio
import socket
from functools import partial
from typing import TYPE_CHECKING

import structlog

from weft_server.api.connection import Connection
from weft_server.transport.connections import peer_of

if TYPE_CHECKING:
    import ssl
    from collections.abc import Sequence

    from weft_server.api.http_connections import HttpConnections

_log = structlog.get_logger(__name__)
# Connections that wait to be accepted, and how many are accepted in one turn of the loop.
BACKLOG = 128
HANDSHAKE_S = 10.0
# After the system could accept none, as when this process may open no more files.
PAUSE_S = 1.0


class Listener:
    """One for a port. To be used on the event loop's thread."""

    def __init__(
        self, sockets: Sequence[socket.socket], connections: HttpConnections, context: ssl.SSLContext | None
    ) -> None:
        """`sockets` are bound, one for each address. Without a `context`, they speak plain text."""
        self._sockets = sockets
        self._connections = connections
        self._context = context
        self._is_open = False
        # The loop itself does not hold what it runs.
        self._beginning: set[asyncio.Task[bool]] = set()

    def start(self) -> None:
        """Begin to accept."""
        self._is_open = True
        for each in self._sockets:
            each.setblocking(False)
            each.listen(BACKLOG)
            self._listen(each)

    def stop(self) -> None:
        """Accept none from now on."""
        self._is_open = False
        for each in self._sockets:
            asyncio.get_running_loop().remove_reader(each)
            each.close()

    def _listen(self, listening: socket.socket) -> None:
        if self._is_open:
            asyncio.get_running_loop().add_reader(listening, self._accept, listening)

    def _accept(self, listening: socket.socket) -> None:
        """Take those that have come."""
        for _ in range(BACKLOG):
            try:
                accepted, address = listening.accept()
            except (BlockingIOError, InterruptedError):
                return
            except ConnectionAbortedError:  # its caller has gone
                continue
            except OSError as error:
                _log.error("no connection can be accepted", why=error.strerror)
                loop = asyncio.get_running_loop()
                loop.remove_reader(listening)
                loop.call_later(PAUSE_S, self._listen, listening)
                return
            self._take(accepted, peer_of(*address[:2]))

    def _take(self, accepted: socket.socket, peer: str) -> None:
        accepted.setblocking(False)
        connection = Connection(self._connections, peer)
        if not self._connections.add(connection):
            accepted.close()
            return
        task = asyncio.get_running_loop().create_task(self._begin(accepted, connection))
        connection.beginning = task
        self._beginning.add(task)
        task.add_done_callback(partial(self._begun, accepted, connection))

    async def _begin(self, accepted: socket.socket, connection: Connection) -> bool:
        """Shake hands. Return whether that went well."""
        try:
            # asyncio does not see that sockets which we bind ourselves are of TCP, and leaves this to us. Without it, a
            # part of a stream waits until its caller's system has acknowledged the last one: 40 ms.
            accepted.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            await asyncio.get_running_loop().connect_accepted_socket(
                lambda: connection,
                accepted,
                ssl=self._context,
                ssl_handshake_timeout=HANDSHAKE_S if self._context else None,
            )
        except OSError:  # its caller has gone, or cannot do it
            return False
        return True

    def _begun(self, accepted: socket.socket, connection: Connection, task: asyncio.Task[bool]) -> None:
        """Take the place of who failed, or was sent away meanwhile."""
        self._beginning.discard(task)
        if task.cancelled():
            accepted.close()  # perhaps the task had not even begun
        if task.cancelled() or not task.result():
            self._connections.discard(connection)
