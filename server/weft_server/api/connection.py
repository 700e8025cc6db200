"""One connection of HTTP/1.1: httptools reads what comes, and this says what is done with it, and for how long.

One request at a time. A caller who sends the next one before the answer is told by the end of the connection to send it
again on another (RFC 9112, section 9.3.2).
"""

from __future__ import annotations

import asyncio
import math
import time
from typing import TYPE_CHECKING, Any

import httptools

from weft_server.api.http_messages import CONTINUE, HttpRequest, HttpResponse, HttpStream, head_of
from weft_server.api.request_body import RequestBody
from weft_server.errors import DeadlineExpired

if TYPE_CHECKING:
    from weft_server.api.http_connections import HttpConnections

# Of a request's line and headers. gRPC's port takes as many.
MAX_HEAD_BYTES = 16 * 1024
MAX_HEADERS = 100
# Beside a body, in one piece: sizes of chunks, and what may stand behind the last one.
MAX_FRAMING_BYTES = 16 * 1024
# For a head to come whole, or a response of no call to be read.
HEAD_S = 10.0
# Between two requests.
IDLE_S = 75.0
# For a caller to notice that a connection ends, who still sends a body that nobody reads.
LINGER_S = 2.0
# Of what is written at once. By TLS nobody is told that a write waits until the next one does.
PIECE_BYTES = 64 * 1024
# Within a stream. Proxies close a connection on which nothing comes, often after a minute.
SILENCE_S = 15.0


class Connection(asyncio.Protocol):
    """Made for each connection that is accepted and has a place. To be used on the event loop's thread.

    Attributes:
        beginning: shakes hands with it.
        until: monotonic seconds at which it is ended, unless something comes. Never while a request is answered: then
            others watch the time.
        write_until: monotonic seconds at which nobody waits for the answer any more.
        peer: its other end, as gRPC spells it.
    """

    def __init__(self, home: HttpConnections, peer: str) -> None:
        self._home = home
        self.peer = peer
        self.beginning: asyncio.Task[bool] | None = None
        self._parser = httptools.HttpRequestParser(self)
        self.until = self.write_until = math.inf
        self._certificate: Any = None
        self._age_at = 0.0
        self._transport: Any = None
        self._task: asyncio.Task[None] | None = None
        self._body: RequestBody | None = None
        # Whether the connection ends after this response, and whether what comes is dropped.
        self._is_last = self._is_deaf = False
        self._is_http_1_0 = False
        self._method = ""
        self._url = b""
        self._headers: list[tuple[str, str]] = []
        # Bytes that have come since the last part of a body, or in this head.
        self._num_framing = 0
        self._writable: asyncio.Future[None] | None = None
        self._is_full = False
        # Of a stream: what is sent while nothing comes, and when something was sent.
        self._comment = b""
        self._wrote_at = 0.0

    # What asyncio calls.

    def connection_made(self, transport: Any) -> None:
        """Take the connection, once hands were shaken."""
        self._transport = transport
        # Who writes waits until the system has all of it.
        transport.set_write_buffer_limits(high=1, low=0)
        self._certificate = transport.get_extra_info("peercert")
        now = time.monotonic()
        self._age_at, self.until = now + self._home.max_age_s, now + HEAD_S

    def connection_lost(self, _error: Exception | None) -> None:
        """End what is done for it: its caller has gone."""
        self._home.discard(self)
        if self._task:
            self._task.cancel()

    def data_received(self, data: bytes) -> None:
        """Read what has come."""
        if self._is_deaf:
            return
        if self._body is None and not self._num_framing:
            self.until = time.monotonic() + HEAD_S
        self._num_framing += len(data)
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserUpgrade:
            self._is_last = self._is_deaf = True  # it is answered as if it had not asked
        except _Unusable as fault:
            self._give_up(fault.status)
        except httptools.HttpParserCallbackError as error:
            if not isinstance(error.__context__, _Unusable):
                raise  # a bug, of which asyncio tells: it ends the connection
            self._give_up(error.__context__.status)
        except httptools.HttpParserError:
            self._give_up(400)
        else:
            most = MAX_HEAD_BYTES if self._body is None else MAX_FRAMING_BYTES
            if self._num_framing > most and not (self._body and self._body.is_whole):
                self._give_up(431)

    def pause_writing(self) -> None:
        """Note that the system takes no more for now."""
        self._is_full = True

    def resume_writing(self) -> None:
        """Note that the system has all."""
        self._is_full = False
        if self._writable and not self._writable.done():
            self._writable.set_result(None)

    # What httptools calls.

    def on_message_begin(self) -> None:
        """Refuse to read a request before the last one is answered."""
        if self._task or self._is_last:
            raise _Unusable(0)

    def on_url(self, url: bytes) -> None:
        """Take a piece of the target."""
        self._url += url

    def on_header(self, name: bytes, value: bytes) -> None:
        """Take a header."""
        # Behind the last chunk of a body may come more. Nobody needs them.
        if self._body is None:
            self._headers.append((name.decode("latin-1").lower(), value.decode("latin-1")))

    def on_headers_complete(self) -> None:
        """Begin to answer. The body may still be on its way."""
        self._is_http_1_0 = self._parser.get_http_version() == "1.0"
        request = self._request()
        self._num_framing = 0
        self._is_last = self._is_http_1_0 or not self._parser.should_keep_alive()
        self.until = self.write_until = math.inf
        self._home.note_busy(self)
        self._task = asyncio.get_running_loop().create_task(self._answer(request))

    def on_body(self, data: bytes) -> None:
        """Take a piece of the body."""
        self._num_framing = 0
        self._incoming.feed(data)

    def on_message_complete(self) -> None:
        """Note that the body is whole."""
        self._incoming.finish()

    # What answers.

    # Each returns once the system has what is sent. Raises DeadlineExpired if it has not until `write_until`.

    async def respond(self, response: HttpResponse) -> None:
        """Send a whole response."""
        ends = self._begin_response()
        # These say themselves that there is no body.
        length = None if response.status in {204, 304} else len(response.body)
        head = head_of(response.status, response.content_type, response.headers, length, ends=ends)
        await self._write(head if self._method == "HEAD" else head + response.body)

    async def begin_stream(self, response: HttpStream) -> None:
        """Send the head of a response that comes in chunks."""
        # HTTP/1.0 knows no chunks: its end is the connection's.
        length = None if self._is_http_1_0 else -1
        head = head_of(200, response.content_type, response.headers, length, ends=self._begin_response())
        await self._write(head)
        self._comment, self._wrote_at = response.comment, time.monotonic()

    async def write_chunk(self, data: bytes) -> None:
        """Send a chunk."""
        if data:
            self._wrote_at = math.inf  # no comment comes between its pieces
            await self._write(self._chunk(data))
            self._wrote_at = time.monotonic()

    def comment_on_silence(self, now: float) -> None:
        """Send a stream's comment if nothing was sent for long."""
        if self._comment and now - self._wrote_at > SILENCE_S:
            self._wrote_at = now
            self._transport.write(self._chunk(self._comment))

    async def end_stream(self) -> None:
        """Send the end of a response that came in chunks."""
        self._comment = b""
        if not self._is_http_1_0:
            await self._write(b"0\r\n\r\n")

    def abort(self) -> None:
        """End the connection now, whatever is on its way."""
        if self._transport:
            self._transport.abort()
        elif self.beginning:
            self.beginning.cancel()

    def close(self) -> None:
        """End the connection unless a request is answered. That one is the last then."""
        self._is_last = True
        if self._transport is None:
            self.abort()
        elif self._task is None:
            self._transport.close()

    # The rest is nobody else's.

    def _request(self) -> HttpRequest:
        """The request whose headers have come. Raises _Unusable."""
        # A part of the body may have come with it. Only then is its size counted.
        is_large = self._num_framing > MAX_HEAD_BYTES and self._size_of_head() > MAX_HEAD_BYTES
        if is_large or len(self._headers) > MAX_HEADERS:
            raise _Unusable(431)
        if not self._is_http_1_0 and self._parser.get_http_version() != "1.1":
            raise _Unusable(505)
        fields = dict(self._headers)
        num_hosts = int("host" in fields)
        if len(fields) < len(self._headers):  # some name came twice
            num_hosts = sum(name == "host" for name, _ in self._headers)
        if num_hosts != 1 and not (self._is_http_1_0 and not num_hosts):
            raise _Unusable(400)
        if self._parser.should_upgrade() and ("content-length" in fields or "transfer-encoding" in fields):
            raise _Unusable(501)  # what stands behind its head is not read as its body
        if "transfer-encoding" in fields:
            codings = [value.strip().lower() for name, value in self._headers if name == "transfer-encoding"]
            if codings != ["chunked"]:
                raise _Unusable(501)  # the body would be read as it is
        target = self._url.decode("latin-1")
        if not target.startswith("/"):
            # A proxy's form, or OPTIONS *: https://www.rfc-editor.org/rfc/rfc9112#section-3.2
            raise _Unusable(400)
        path, _, query = target.partition("?")
        waits = fields.get("expect", "").lower() == "100-continue"
        length = fields.get("content-length")
        self._body = RequestBody(int(length) if length else None, self._proceed if waits else None)
        self._method = self._parser.get_method().decode("latin-1")
        return HttpRequest(
            method=self._method,
            path=path,
            query=query,
            headers=self._headers,
            fields=fields,
            peer=self.peer,
            certificate=self._certificate,
            incoming=self._body,
        )

    def _size_of_head(self) -> int:
        return len(self._url) + sum(len(name) + len(value) + 4 for name, value in self._headers)

    async def _answer(self, request: HttpRequest) -> None:
        try:
            await self._home.answer(request, self)
        finally:
            self._task = None
        self._go_on()

    def _go_on(self) -> None:
        """Wait for the next request, or end the connection."""
        self._home.note_idle(self)
        self._url, self._headers = b"", []
        if self._is_last:
            self._linger() if not self._incoming.is_whole else self._transport.close()
            return
        self._body = None
        self._num_framing = 0
        self.until = time.monotonic() + IDLE_S

    def _linger(self) -> None:
        """End the connection of who still sends. If it ended at once, the response might not be read.

        RFC 9112, section 9.6.
        """
        self._is_deaf = True
        self.until = time.monotonic() + LINGER_S
        if self._transport.can_write_eof():
            self._transport.write_eof()

    def _chunk(self, data: bytes) -> bytes:
        return data if self._is_http_1_0 else b"%x\r\n%b\r\n" % (len(data), data)

    @property
    def _incoming(self) -> RequestBody:
        """The body of the request that is being read or answered."""
        assert self._body is not None, "a body without its head. This is a bug."
        return self._body

    def _begin_response(self) -> bool:
        """Whether the connection ends after the response that begins now."""
        # What is left of a body is not read for the next request's sake.
        self._is_last |= not self._incoming.is_whole or self._home.is_draining or time.monotonic() > self._age_at
        return self._is_last

    def _proceed(self) -> None:
        self._transport.write(CONTINUE)

    def _give_up(self, status: int) -> None:
        """End a connection on which something unusable came. A request that was read before is answered."""
        self._is_last = self._is_deaf = True
        if self._task is None:
            self._transport.write(head_of(status, "", (), 0, ends=True))
            self._linger()
        elif self._body and not self._body.is_whole:
            self._body.break_off()

    async def _write(self, data: bytes) -> None:
        for start in range(0, len(data), PIECE_BYTES):
            if self._transport.is_closing():
                raise asyncio.CancelledError  # its caller has gone, which `connection_lost` says in a moment
            self._transport.write(data[start : start + PIECE_BYTES])
            while self._is_full:
                await self._until_writable()

    async def _until_writable(self) -> None:
        self._writable = asyncio.get_running_loop().create_future()
        try:
            async with asyncio.timeout_at(None if self.write_until == math.inf else self.write_until):
                await self._writable
        except TimeoutError:
            raise DeadlineExpired from None


class _Unusable(Exception):
    """What came is no request that this port answers. `status` is HTTP's."""

    def __init__(self, status: int) -> None:
        super().__init__(status)
        self.status = status
