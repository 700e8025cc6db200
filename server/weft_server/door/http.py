"""The small HTTP server beside gRPC: /metrics for Prometheus, /livez and /readyz for people and probes."""

import re
import socket
import sys
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, NamedTuple

import structlog
from prometheus_client import CollectorRegistry
from prometheus_client.exposition import choose_encoder

_log = structlog.get_logger(__name__)
# A connection holds a thread no longer than this, however slowly its client writes or reads.
TIMEOUT_S = 10.0
# With one connection more, the oldest is closed. So nobody who holds them all keeps a probe out.
MAX_CONNECTIONS = 64
# How often the listening thread looks around. `stop` may have to wait as long.
POLL_S = 0.1
# In an Accept header, a version that does not consist of a few numbers, each of a few digits.
_NO_VERSION = re.compile(r";\s*version=(?!\d{1,9}(\.\d{1,9}){0,9}\s*([;,]|$))[^;,]*")


class HttpServer:
    """Listens from construction, answers from `start` to `stop`, on threads of its own.

    `why_not_live` and `why_not_ready` give a sentence, or nothing when all is well. They are called from those threads.
    """

    def __init__(
        self,
        host: str,
        port: int,
        registry: CollectorRegistry,
        why_not_live: Callable[[], str],
        why_not_ready: Callable[[], str],
    ) -> None:
        """Bind `host`:`port`. Port 0 takes a free one. Raises OSError when it cannot."""
        pages = {
            "/metrics": lambda accept: _metrics(registry, accept),
            "/livez": lambda _: _probe(why_not_live()),
            "/readyz": lambda _: _probe(why_not_ready()),
        }
        handler = type("Handler", (_Handler,), {"pages": pages})
        server = _ServerV6 if ":" in host else _Server
        self._server = server((host, port), handler)
        self._thread = threading.Thread(target=self._server.serve_forever, args=(POLL_S,), name="http", daemon=True)

    @property
    def port(self) -> int:
        """The port that is listened on."""
        return int(self._server.server_address[1])

    def start(self) -> None:
        """Begin to answer."""
        self._thread.start()

    def stop(self) -> None:
        """Stop answering and free the port."""
        if self._thread.is_alive():
            self._server.shutdown()
            self._thread.join()
        self._server.server_close()


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    # With the library's queue of five, a burst of probes waits a second for its turn.
    request_queue_size = 128

    def __init__(self, *args: Any) -> None:
        # Open connections, oldest first, and since when (monotonic seconds).
        self._open: dict[socket.socket, float] = {}
        self._lock = threading.Lock()
        super().__init__(*args)

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
                request.shutdown(socket.SHUT_RDWR)

    def handle_error(self, request: object, client_address: object) -> None:  # noqa: ARG002 - http.server's signature
        """A caller that goes away is no event. http.server would print a traceback."""
        is_gone = isinstance(sys.exc_info()[1], OSError)
        (_log.debug if is_gone else _log.error)("http connection failed", peer=client_address, exc_info=True)


class _ServerV6(_Server):
    address_family = socket.AF_INET6


class _Page(NamedTuple):
    status: HTTPStatus
    content_type: str
    body: bytes


def _metrics(registry: CollectorRegistry, accept: str) -> _Page:
    # The library does not know quotes, and fails over a version that is none.
    encode, content_type = choose_encoder(_NO_VERSION.sub("", accept.replace('"', "")))
    return _Page(HTTPStatus.OK, content_type, encode(registry))


def _probe(why_not: str) -> _Page:
    status = HTTPStatus.SERVICE_UNAVAILABLE if why_not else HTTPStatus.OK
    return _text(status, why_not or "ok")


def _text(status: HTTPStatus, line: str) -> _Page:
    return _Page(status, "text/plain; charset=utf-8", f"{line}\n".encode())


class _Handler(BaseHTTPRequestHandler):
    pages: dict[str, Callable[[str], _Page]]
    server_version = "weft"
    sys_version = ""

    def do_GET(self) -> None:
        make = self.pages.get(self.path.partition("?")[0])
        page = make(self.headers.get("Accept", "")) if make else _text(HTTPStatus.NOT_FOUND, "not found")
        self.send_response(page.status)
        self.send_header("Content-Type", page.content_type)
        self.send_header("Content-Length", str(len(page.body)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(page.body)

    do_HEAD = do_GET  # noqa: N815 - http.server names it

    def log_message(self, *_: object) -> None:
        """Say nothing: a probe every few seconds is no event."""
