"""The small HTTP server beside gRPC, for the pages of `pages`: its connections, and how long each may last."""

from __future__ import annotations

import socket
import ssl
import sys
import threading
import time
from contextlib import suppress
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING, Any

import structlog

from weft_server.http.endpoints import PageRequest
from weft_server.transport.addresses import addresses_of, free_port, place

if TYPE_CHECKING:
    from weft_server.auth.credentials import Credentials
    from weft_server.http.endpoints import Endpoints

_log = structlog.get_logger(__name__)
# A connection holds a thread no longer than this, however slowly its client shakes hands, writes or reads.
TIMEOUT_S = 10.0
# Of each address. With one connection more, the oldest is closed. So nobody who holds them all keeps a probe out.
MAX_CONNECTIONS = 64
# How often the listening thread looks around. `stop` may have to wait as long.
POLL_S = 0.1


class HttpServer:
    """Listens from construction, answers from `start` to `stop`, on threads of its own."""

    def __init__(self, host: str, port: int, pages: Endpoints, credentials: Credentials) -> None:
        """Bind the port at every address of a host. Port 0 takes a free one. Raises OSError when it cannot."""
        handler = type("Handler", (_Handler,), {"pages": pages})
        addresses = addresses_of(host)
        if not port and len(addresses) > 1:
            port = free_port(addresses)
        self.servers: list[_Server] = []
        try:
            for address in addresses:
                self.servers.append(_server_at(address, port, handler, credentials))
        except OSError:
            self._close()
            raise
        self.threads = [self._make_thread(server) for server in self.servers]

    @staticmethod
    def _make_thread(server: _Server) -> threading.Thread:
        return threading.Thread(target=server.serve_forever, args=(POLL_S,), name="http", daemon=True)

    @property
    def port(self) -> int:
        """The port that is listened on."""
        return int(self.servers[0].server_address[1])

    def start(self) -> None:
        """Begin to answer."""
        for thread in self.threads:
            thread.start()

    def supervise(self) -> None:
        """Begin to answer again if the listening thread has ended, for which there is no good reason."""
        for number, server in enumerate(self.servers):
            if not self.threads[number].is_alive():
                _log.error("the listening thread has ended, another one takes its place")
                self.threads[number] = self._make_thread(server)
                self.threads[number].start()

    def stop(self) -> None:
        """Stop answering and free the port."""
        for server, thread in zip(self.servers, self.threads, strict=True):
            if thread.is_alive():
                server.shutdown()
                thread.join()
        self._close()

    def _close(self) -> None:
        for server in self.servers:
            server.server_close()


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    # With the library's queue of five, a burst of probes waits a second for its turn.
    request_queue_size = 128
    credentials: Credentials

    def __init__(self, *args: Any) -> None:
        # Open connections, oldest first, and since when (monotonic seconds).
        self._open: dict[socket.socket, float] = {}
        self._lock = threading.Lock()
        super().__init__(*args)

    def get_request(self) -> tuple[Any, Any]:
        """Take a connection, with the certificate of now. Called on the listening thread, which waits for no client."""
        request, client_address = super().get_request()
        if certificates := self.credentials.certificates:
            try:
                request = certificates.http.wrap_socket(request, server_side=True, do_handshake_on_connect=False)
            except OSError:  # the client has gone
                request.close()
                raise
        return request, client_address

    def finish_request(self, request: Any, client_address: Any) -> None:
        """Shake hands and answer. Called on the connection's thread."""
        if isinstance(request, ssl.SSLSocket):
            request.do_handshake()
        super().finish_request(request, client_address)

    def process_request(self, request: Any, client_address: Any) -> None:
        """Take a connection to a thread of its own. Called on the listening thread."""
        with self._lock:
            self._open[request] = time.monotonic()
            oldest = list(self._open)[:-MAX_CONNECTIONS]
        self._hang_up(oldest)
        super().process_request(request, client_address)

    def shutdown_request(self, request: Any) -> None:
        """Forget a connection that has had its answer. Called on its thread."""
        with self._lock:
            self._open.pop(request, None)
        super().shutdown_request(request)

    def service_actions(self) -> None:
        """Hang up on clients that take too long. The listening thread does it every POLL_S."""
        late = time.monotonic() - TIMEOUT_S
        with self._lock:
            self._hang_up([request for request, since in self._open.items() if since < late])

    @staticmethod
    def _hang_up(requests: list[socket.socket]) -> None:
        """Wake the threads of connections: what they read or write fails, and they end."""
        for request in requests:
            with suppress(OSError):  # its thread was faster
                # As plain sockets: TLS would have its thread go on without encryption.
                socket.socket.shutdown(request, socket.SHUT_RDWR)

    def handle_error(self, request: object, client_address: object) -> None:  # noqa: ARG002 - http.server's signature
        """A caller that goes away is no event. http.server would print a traceback."""
        is_gone = isinstance(sys.exc_info()[1], OSError)
        (_log.debug if is_gone else _log.error)("http connection failed", peer=client_address, exc_info=True)


class _ServerV6(_Server):
    address_family = socket.AF_INET6


def _server_at(address: str, port: int, handler: type[_Handler], credentials: Credentials) -> _Server:
    kind = _ServerV6 if ":" in address else _Server
    try:
        server = kind((address, port), handler)
    except OSError as error:
        raise OSError(error.errno, f"{place(address, port)}: {error.strerror}") from error
    server.credentials = credentials
    return server


class _Handler(BaseHTTPRequestHandler):
    pages: Endpoints
    server_version = "weft"
    sys_version = ""

    def do_GET(self) -> None:
        page = self.pages.get(self.path.partition("?")[0], self._asked())
        self.send_response(page.status)
        if page.status == HTTPStatus.UNAUTHORIZED:
            self.send_header("WWW-Authenticate", "Bearer")
        self.send_header("Content-Type", page.content_type)
        self.send_header("Content-Length", str(len(page.body)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(page.body)

    def _asked(self) -> PageRequest:
        connection: Any = self.connection
        certificate = connection.getpeercert() if isinstance(connection, ssl.SSLSocket) else None
        return PageRequest(self.headers.get("Accept", ""), self.headers.get_all("Authorization", []), certificate)

    do_HEAD = do_GET  # noqa: N815 - http.server names it

    def log_message(self, *_: object) -> None:
        """Say nothing: a probe every few seconds is no event."""
