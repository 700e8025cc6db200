"""The HTTP port with TLS, tokens and certificates: who may read what, and handshakes that never end."""

import http.client
import socket
import ssl
from contextlib import contextmanager, suppress

import pytest

from certificates import Authority
from intercepted import AUTHORITY, SERVER, TOKENS, credentials_of, look_twice
from weft_server.auth.authorization import Authorization as Access
from weft_server.http import http_server as door_http
from weft_server.http.endpoints import Endpoints
from weft_server.http.http_server import HttpServer
from weft_server.telemetry.metrics import Metrics

WHY_NOT = "model secret version 1: loading"
CALLER = {"Authorization": "Bearer token-of-the-caller"}
SCRAPER = {"Authorization": "Bearer token-of-the-scraper"}


@contextmanager
def served(tmp_path, *, tls=False, mutual=False, tokens="", ready=WHY_NOT):
    """A server, and its credentials."""
    settings = {}
    if tls or mutual:
        settings["tls_cert"], settings["tls_key"] = SERVER.write(tmp_path)
    if mutual:
        settings["tls_client_ca"] = tmp_path / "ca.crt"
        settings["tls_client_ca"].write_bytes(AUTHORITY.certificate)
    if tokens:
        settings["tokens"] = tmp_path / "tokens"
        settings["tokens"].write_text(tokens)
    credentials = credentials_of(**settings)
    pages = Endpoints(Metrics(), str, lambda: ready, Access(credentials))
    server = HttpServer("127.0.0.1", 0, pages, credentials)
    server.start()
    try:
        yield server, credentials
    finally:
        server.stop()


def trusting(authority=AUTHORITY, paths=None):
    """What a client of HTTPS trusts and shows."""
    context = ssl.create_default_context(cadata=authority.certificate.decode())
    if paths:
        context.load_cert_chain(*paths)
    return context


def get(server, path, context=None, **headers):
    """(status, body) of a GET."""
    port = server.port
    kind = http.client.HTTPSConnection if context else http.client.HTTPConnection
    connection = kind("localhost", port, timeout=10, **({"context": context} if context else {}))
    try:
        connection.request("GET", path, headers=headers)
        answer = connection.getresponse()
        return answer.status, answer.read().decode()
    finally:
        connection.close()


def test_metrics_are_for_scrapers(tmp_path):
    """Without a token 401, without the role 403, with it the metrics; a wrong token is no better than none."""
    with served(tmp_path, tokens=TOKENS) as (server, _):
        assert 401 == get(server, "/metrics")[0]
        assert 401 == get(server, "/metrics", Authorization="Bearer token-of-nobody")[0]
        assert (403, "'caller' lacks the role metrics, which this needs\n") == get(server, "/metrics", **CALLER)
        status, text = get(server, "/metrics", **SCRAPER)
        assert (200, True) == (status, "weft_draining" in text)
        assert 404 == get(server, "/nothing", **SCRAPER)[0]


def test_probes_are_open_and_name_no_model(tmp_path):
    """Everybody hears whether the server is ready; why not is for who is known."""
    with served(tmp_path, tokens=TOKENS) as (server, _):
        assert (200, "ok\n") == get(server, "/livez")
        assert (503, "not ready\n") == get(server, "/readyz")
        assert (503, "not ready\n") == get(server, "/readyz", Authorization="Bearer token-of-nobody")
        assert (503, f"{WHY_NOT}\n") == get(server, "/readyz", **SCRAPER)


def test_a_certificate_is_wanted_for_metrics_and_not_for_probes(tmp_path):
    """With mutual TLS: probes show none. One of ours may read the metrics, one of others does not come in."""
    (tmp_path / "callers").mkdir()
    ours = AUTHORITY.issue("scraper").write(tmp_path / "callers", "ours")
    theirs = Authority().issue("scraper").write(tmp_path / "callers", "theirs")
    with served(tmp_path, mutual=True) as (server, _):
        assert (200, "ok\n") == get(server, "/livez", trusting())
        assert 401 == get(server, "/metrics", trusting())[0]
        assert 200 == get(server, "/metrics", trusting(paths=ours))[0]
        with pytest.raises(OSError):  # noqa: PT011 - which one depends on who is faster
            get(server, "/livez", trusting(paths=theirs))


def test_a_certificate_that_is_listed_has_its_roles(tmp_path):
    """With tokens and mutual TLS a line of the file says what a certificate may do; a token counts before it."""
    (tmp_path / "callers").mkdir()
    reader = AUTHORITY.issue("reader", hosts=()).write(tmp_path / "callers", "reader")
    signed = AUTHORITY.issue("x", hosts=("signed.example.com",)).write(tmp_path / "callers", "signed")
    with served(tmp_path, mutual=True, tokens=TOKENS) as (server, _):
        assert 200 == get(server, "/metrics", trusting(paths=reader))[0]
        assert 403 == get(server, "/metrics", trusting(paths=signed))[0]
        assert 200 == get(server, "/metrics", trusting(paths=signed), **SCRAPER)[0]
        assert 401 == get(server, "/metrics", trusting())[0]


def test_a_new_certificate_is_shown_at_once(tmp_path):
    """The next connection gets it, and a broken one changes nothing."""
    other = Authority("another")
    with served(tmp_path, tls=True) as (server, credentials):
        assert 200 == get(server, "/livez", trusting())[0]
        other.issue().write(tmp_path)
        look_twice(credentials)
        assert 200 == get(server, "/livez", trusting(other))[0]
        with pytest.raises(ssl.SSLCertVerificationError):
            get(server, "/livez", trusting())
        (tmp_path / "tls.crt").write_bytes(b"")
        look_twice(credentials)
        assert 200 == get(server, "/livez", trusting(other))[0]


def test_a_handshake_that_never_ends_keeps_nobody_waiting(tmp_path, monkeypatch):
    """Who connects and says nothing, or begins to shake hands and stops, is hung up on; others are answered."""
    with served(tmp_path, tls=True) as (server, _):
        silent = [socket.create_connection(("127.0.0.1", server.port)) for _ in range(20)]
        for connection in silent[::2]:
            connection.sendall(bytes.fromhex("160301020001"))  # the beginning of a hello
        assert 200 == get(server, "/livez", trusting())[0]
        with monkeypatch.context() as soon:
            soon.setattr(door_http, "TIMEOUT_S", 0.1)
            for connection in silent:
                connection.settimeout(20)
                with suppress(ConnectionResetError):
                    while connection.recv(99):
                        pass
                connection.close()
        assert 200 == get(server, "/livez", trusting())[0]


def test_plain_text_to_a_port_of_tls_is_no_bug(tmp_path):
    """It is hung up on, and nothing is answered in plain text."""
    with served(tmp_path, tls=True) as (server, _):
        with pytest.raises((OSError, http.client.HTTPException)):
            get(server, "/livez")
        assert 200 == get(server, "/livez", trusting())[0]
