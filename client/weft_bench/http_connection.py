"""Connections of HTTP/1.1 to one server: as many as there are requests on their way, for each has one at a time."""

import asyncio
import ssl
from collections.abc import Callable
from typing import Any

import httptools

from weft.exceptions import InvalidRequest, Unavailable


class HttpConnection(asyncio.Protocol):
    """One connection. `is_open`: whether it takes another request."""

    def __init__(self) -> None:
        self.is_open = True
        self._parser = httptools.HttpResponseParser(self)
        self._transport: Any = None
        self._take: Callable[[bytes], None] = _drop
        self._ended: asyncio.Future[int | None] | None = None

    async def ask(self, request: bytes, take: Callable[[bytes], None]) -> int | None:
        """Send a request and return its status, once `take` has had each piece of the body. None: it was given up.

        Raises:
            ConnectionError: the server has closed the connection, or what it says is no HTTP/1.1.
        """
        if not self.is_open:
            raise ConnectionResetError(_CLOSED)
        self._take = take
        self._ended = asyncio.get_running_loop().create_future()
        self._transport.write(request)
        try:
            return await self._ended
        finally:
            if self._ended.cancelled():  # its time is over, or Ctrl-C
                self.give_up()

    def give_up(self) -> None:
        """Want no more of the answer. That ends the connection: HTTP/1.1 has no other way to say so."""
        self._end(None)
        self.close()

    def close(self) -> None:
        """End the connection now."""
        self.is_open = False
        self._take = _drop
        self._transport.abort()

    # What asyncio calls.

    def connection_made(self, transport: Any) -> None:
        """Begin."""
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        """Read what has come."""
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserError:
            self._fail("what answers there is no HTTP/1.1")
            self.close()

    def connection_lost(self, _error: Exception | None) -> None:
        """Note that the connection has ended."""
        self.is_open = False
        self._fail(_CLOSED)

    # What httptools calls.

    def on_body(self, data: bytes) -> None:
        """Take a piece of the body."""
        self._take(data)

    def on_message_complete(self) -> None:
        """End a request."""
        if not self._parser.should_keep_alive():
            self.is_open = False
            self._transport.close()
        self._end(self._parser.get_status_code())

    def _end(self, status: int | None) -> None:
        if self._ended and not self._ended.done():
            self._ended.set_result(status)

    def _fail(self, why: str) -> None:
        if self._ended and not self._ended.done():
            self._ended.set_exception(ConnectionResetError(why))


_CLOSED = "the server has closed the connection"


def _drop(_data: bytes) -> None:
    """Take nothing."""


class HttpPool:
    """The connections to one server. `host` is what each request says whom it is for."""

    def __init__(self, target: str, tls: ssl.SSLContext | None) -> None:
        """Raises InvalidRequest: the target is no host and port."""
        self.host = target
        name, _, port = target.rpartition(":")
        if ":" in name and not name.startswith("["):
            raise InvalidRequest(f"--target: by HTTP it must be host:port, not {target}")
        self._name = name.strip("[]")
        # Of several addresses, the first that answers. A name is not looked up for each connection.
        self._address = self._name
        self._port = int(port)
        self._tls = tls
        self._idle: list[HttpConnection] = []
        self._all: set[HttpConnection] = set()

    async def take(self) -> HttpConnection:
        """Return a connection for one request. Raises OSError."""
        while self._idle:
            if (connection := self._idle.pop()).is_open:
                return connection
            self._all.discard(connection)
        name = self._name if self._tls else None
        transport, connection = await asyncio.get_running_loop().create_connection(
            HttpConnection, self._address, self._port, ssl=self._tls, server_hostname=name
        )
        self._address = transport.get_extra_info("peername")[0]
        self._all.add(connection)
        return connection

    def give(self, connection: HttpConnection) -> None:
        """Take a connection back whose request has ended."""
        if connection.is_open:
            self._idle.append(connection)
        else:
            self._all.discard(connection)

    async def connect(self, seconds: float) -> None:
        """Make the first connection. Raises Unavailable."""
        try:
            async with asyncio.timeout(seconds):
                self.give(await self.take())
        except TimeoutError:
            raise Unavailable(f"{self.host}: no connection in {seconds:g} s") from None
        except OSError as error:
            raise Unavailable(f"{self.host}: {error.strerror or error}") from None

    def close(self) -> None:
        """End all connections."""
        for connection in self._all:
            connection.close()
