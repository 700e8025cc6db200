"""The HTTP server over real connections: metrics, probes, and nothing else."""

import asyncio
import socket
import threading
import time
import urllib.error
import urllib.request
from contextlib import contextmanager

import pytest
from structlog.testing import capture_logs

from intercepted import credentials_of
from waiting import until
from weft_server.auth.authorization import Authorization
from weft_server.http import http_server
from weft_server.http.endpoints import Endpoints
from weft_server.http.http_server import HttpServer
from weft_server.telemetry.metrics import Metrics


def _server(why_not_live=str, why_not_ready=str, port=0, **settings):
    credentials = credentials_of(**settings)
    pages = Endpoints(Metrics(), why_not_live, why_not_ready, Authorization(credentials))
    return HttpServer("127.0.0.1", port, pages, credentials)


@contextmanager
def _served(live="", ready="", **settings):
    server = _server(lambda: live, lambda: ready, **settings)
    server.start()
    try:
        yield server
    finally:
        server.stop()


def _get(server, path, method="GET", **headers):
    url = f"http://127.0.0.1:{server.port}{path}"
    try:
        with urllib.request.urlopen(urllib.request.Request(url, headers=headers, method=method), timeout=60) as answer:
            return answer.status, answer.headers["Content-Type"], answer.read().decode()
    except urllib.error.HTTPError as error:
        with error:
            return error.code, error.headers["Content-Type"], error.read().decode()


def test_probes_say_yes_or_why_not():
    """A probe is 200 when all is well and else 503, with one line that says why."""
    with _served(ready="model en-es version 1: loading") as server:
        assert (200, "ok\n") == _get(server, "/livez")[::2]
        assert (503, "model en-es version 1: loading\n") == _get(server, "/readyz")[::2]


def test_a_page_that_fails_is_in_the_log():
    """A bug of a page is no caller that went away: it is logged as an error, with its traceback."""

    def broken():
        raise RuntimeError("broken page")

    server = _server(broken)
    server.start()
    try:
        with capture_logs() as logs, pytest.raises(OSError, match="closed connection"):
            _get(server, "/livez")
    finally:
        server.stop()
    assert [("http connection failed", "error")] == [(entry["event"], entry["log_level"]) for entry in logs]


def test_metrics_are_in_the_format_that_is_asked_for():
    """/metrics is Prometheus text, and OpenMetrics for who accepts it."""
    with _served() as server:
        status, kind, text = _get(server, "/metrics")
        assert (200, True) == (status, kind.startswith("text/plain"))
        assert "weft_draining 0.0" in text
        _, kind, text = _get(server, "/metrics?x=1", Accept="application/openmetrics-text; version=1.0.0")
        assert kind.startswith("application/openmetrics-text")
        assert text.endswith("# EOF\n")


@pytest.mark.parametrize(
    ("accept", "kind"),
    [
        ("application/openmetrics-text; version=abc", "application/openmetrics-text"),
        ('application/openmetrics-text; version="1.0.0"', "application/openmetrics-text"),
        ("text/plain; version=1.x.0", "text/plain"),
        ('text/plain; version="0.0.4"', "text/plain"),
        (f"text/plain; version={'9' * 5000}", "text/plain"),
        ("application/openmetrics-text; version=1.0.0; escaping=, text/plain;q=x", "application/openmetrics-text"),
        ("; ;,,;version", "text/plain"),
        ("*/*", "text/plain"),
    ],
)
def test_every_accept_header_gets_the_metrics(accept, kind):
    """Versions that are quoted, or none, are no reason for an empty reply."""
    with _served() as server:
        status, content_type, text = _get(server, "/metrics", Accept=accept)
        assert (200, kind) == (status, content_type.partition(";")[0])
        assert "weft_draining" in text


@pytest.mark.parametrize(
    ("path", "method", "status"), [("/", "GET", 404), ("/metrics", "POST", 501), ("/livez", "HEAD", 200)]
)
def test_there_is_nothing_else(path, method, status):
    """Other paths are 404, other methods refused, and HEAD has no body."""
    with _served() as server:
        assert status == _get(server, path, method)[0]


def test_a_silent_connection_blocks_nobody():
    """While one client holds a connection and says nothing, others are answered."""
    with _served() as server, socket.create_connection(("127.0.0.1", server.port)):
        assert 200 == _get(server, "/livez")[0]


def test_stop_frees_the_port_and_needs_no_start():
    """After stop the port can be bound again at once, started or not."""
    with _served() as server:
        _get(server, "/livez")
    again = _server(port=server.port)
    with pytest.raises(OSError, match="in use"):
        _server(port=server.port)
    again.stop()


def _is_ended(connection):
    """Send a byte; whether the other side has hung up."""
    try:
        connection.sendall(b"G")
        return connection.recv(1) == b""
    except TimeoutError:
        return False
    except OSError:
        return True


def test_who_trickles_holds_a_thread_only_so_long(monkeypatch):
    """A client that sends a byte now and then is hung up on once its time is over."""
    with _served() as server:
        with monkeypatch.context() as hurried, socket.create_connection(("127.0.0.1", server.port)) as trickling:
            hurried.setattr(http_server, "TIMEOUT_S", 0.5)
            trickling.settimeout(0.05)
            give_up = time.monotonic() + 60
            while time.monotonic() < give_up and not _is_ended(trickling):
                pass
            assert time.monotonic() < give_up
        assert 200 == _get(server, "/livez")[0]


def test_many_who_trickle_hold_few_threads():
    """Of more connections than there may be the oldest are ended, and a probe gets through."""
    before = threading.active_count()
    with _served() as server:
        trickling = [
            socket.create_connection(("127.0.0.1", server.port)) for _ in range(3 * http_server.MAX_CONNECTIONS)
        ]
        try:
            for connection in trickling[: http_server.MAX_CONNECTIONS]:  # their threads have ended
                connection.settimeout(60)
                assert b"" == connection.recv(1)
            assert 200 == _get(server, "/livez")[0]
            asyncio.run(until(lambda: threading.active_count() - before <= 2 * http_server.MAX_CONNECTIONS + 1))
            assert 200 == _get(server, "/readyz")[0]
        finally:
            for connection in trickling:
                connection.close()


def test_a_listening_thread_that_ended_is_replaced(monkeypatch):
    """A bug ends it. Probes are answered again once somebody has looked, and the log has it."""
    monkeypatch.setattr(threading, "excepthook", lambda _: None)
    with _served() as server, capture_logs() as logs:
        server.supervise()
        assert [] == logs
        with monkeypatch.context() as broken:
            broken.setattr(server.servers[0], "service_actions", lambda: 1 / 0)
            server.threads[0].join(60)
        server.supervise()
        assert (200, "ok\n") == _get(server, "/livez")[::2]
    assert ["error"] == [event["log_level"] for event in logs]
