"""Which way a client goes: straight to this machine, whatever the environment says, or through a proxy."""

import asyncio
import contextlib
import socket
import threading
from concurrent.futures import ThreadPoolExecutor

import grpc
import pytest

import weft
from certificates import Authority
from fakes import fake_server
from hostile_servers import served
from weft._target import is_local
from weft_command import running

VARIABLES = ("grpc_proxy", "https_proxy", "http_proxy", "GRPC_PROXY", "HTTPS_PROXY", "HTTP_PROXY", "all_proxy")
HERE = [
    "127.0.0.1",
    "127.9.8.7",
    "localhost",
    "LOCALHOST",
    "localhost.",
    "ip6-localhost",
    "[::1]",
    "[::ffff:127.0.0.1]",
]


class Proxy:
    """An HTTP proxy that notes whom it is asked for, and connects to `towards`, if that is given."""

    def __init__(self, towards=None):
        self.asked = []
        self._towards = towards

    def __call__(self, connection):
        """Have one connection."""
        head = b""
        while b"\r\n\r\n" not in head:
            head += connection.recv(1 << 12)
        self.asked.append(head.split(b" ")[1].decode())
        if self._towards is None:
            connection.sendall(b"HTTP/1.1 502 Bad Gateway\r\n\r\n")
            return
        host, _, port = self._towards.rpartition(":")
        with socket.create_connection((host, int(port))) as far:
            connection.sendall(b"HTTP/1.1 200 OK\r\n\r\n")
            threading.Thread(target=_carry, args=(far, connection), daemon=True).start()
            _carry(connection, far)


def _carry(source, sink):
    with contextlib.suppress(OSError):
        while data := source.recv(1 << 16):
            sink.sendall(data)
        sink.shutdown(socket.SHUT_WR)


@pytest.fixture
def proxy(monkeypatch):
    """A proxy that every variable names, and that reaches nobody."""
    proxy = Proxy()
    with served(proxy) as address:
        for name in VARIABLES:
            monkeypatch.setenv(name, f"http://{address}")
        for name in ("no_proxy", "NO_PROXY", "no_grpc_proxy"):
            monkeypatch.delenv(name, raising=False)
        yield proxy


@contextlib.contextmanager
def over_tls():
    """host:port and authority of a server that speaks TLS and answers `Health/Check`."""
    authority = Authority()
    pair = authority.issue("localhost")

    class Health(grpc.GenericRpcHandler):
        def service(self, details):
            if details.method.endswith("Check"):
                return grpc.unary_unary_rpc_method_handler(lambda *_: b"\x08\x01")
            return None

    server = grpc.server(ThreadPoolExecutor(2), handlers=(Health(),))
    port = server.add_secure_port("127.0.0.1:0", grpc.ssl_server_credentials([(pair.key, pair.certificate)]))
    server.start()
    yield f"localhost:{port}", authority
    server.stop(None).wait()


def sync_health(target, **options):
    """Ask by the blocking client."""
    with weft.Client(target, timeout=30.0, **options) as client:
        return client.health()


def async_health(target, **options):
    """Ask by the asyncio client."""

    async def run():
        async with weft.AsyncClient(target, timeout=30.0, **options) as client:
            return await client.health()

    return asyncio.run(run())


def admin_health(target, **options):
    """Ask by the client of the admin port."""
    with weft.AdminClient(target, timeout=30.0, **options) as client:
        return client.health()


@pytest.mark.parametrize("health", [sync_health, async_health, admin_health])
def test_this_machine_is_reached_without_a_proxy(proxy, server, health):
    """In plain text and by TLS, whatever the environment says."""
    assert weft.Health.SERVING == health(server.target)
    with over_tls() as (target, authority):
        credentials = grpc.ssl_channel_credentials(authority.certificate)
        assert weft.Health.SERVING == health(target, credentials=credentials)
    assert [] == proxy.asked


def test_a_unix_socket_is_reached_without_a_proxy(proxy, tmp_path):
    """Which is on this machine, too."""
    with weft.Client(f"unix:{tmp_path / 'none.sock'}", timeout=20.0) as client, pytest.raises(weft.Unavailable):
        client.health()
    assert [] == proxy.asked


@pytest.mark.parametrize("host", HERE)
def test_each_name_of_this_machine_is_one(proxy, host):
    """Addresses of loopback in all their forms, and what hosts files call them. Nobody may be there."""
    assert is_local(f"{host}:1")
    with weft.Client(f"{host}:1", timeout=20.0) as client, pytest.raises((weft.Unavailable, weft.DeadlineExceeded)):
        client.health()
    assert [] == proxy.asked


def test_the_commands_go_without_a_proxy(proxy, server, capsys):
    """By TLS too, and so does the load generator."""
    assert 0 == running.run(["translate", "a b", "-t", server.target])
    assert 0 == running.run(["health", "-t", server.target])
    assert 0 == running.run(["models", "-t", server.target])
    asked = ["bench", "-t", server.target, "--model", "en-es", "--requests", "2", "--warmup", "0", "--concurrency", "1"]
    assert 0 == running.run(asked), capsys.readouterr().err
    assert [] == proxy.asked


def test_other_machines_are_reached_through_the_environments_proxy(proxy):
    """As gRPC does by itself."""
    with weft.Client("weft.invalid:7070", timeout=20.0) as client, pytest.raises(weft.Unavailable, match="proxy"):
        client.health()
    assert {"weft.invalid:7070"} == set(proxy.asked)


@pytest.mark.parametrize("health", [sync_health, async_health, admin_health])
def test_a_proxy_that_is_named_is_gone_through(server, health):
    """To this machine too."""
    proxy = Proxy(server.target)
    with served(proxy) as address:
        assert weft.Health.SERVING == health(server.target, proxy=f"http://{address}")
    assert [server.target] == proxy.asked


def test_the_command_takes_a_proxy(server, monkeypatch, capsys):
    """By a flag, or by WEFT_PROXY."""
    proxy = Proxy(server.target)
    with served(proxy) as address:
        assert 0 == running.run(["health", "-t", server.target, "--proxy", f"http://{address}"])
        monkeypatch.setenv("WEFT_PROXY", f"http://{address}")
        assert 0 == running.run(["translate", "a b", "-t", server.target])
    assert "b a" in capsys.readouterr().out
    assert {server.target} == set(proxy.asked)
    assert 2 <= len(proxy.asked)


@pytest.mark.parametrize(
    "proxy", ["", "127.0.0.1:3128", "https://proxy:3128", "http://", "http://proxy", "http://u:secret@proxy", 5, b"x"]
)
def test_what_is_no_proxy_is_refused(proxy):
    """GRPC would go without it, and say nothing. A password in it is not shown."""
    with pytest.raises(weft.InvalidRequest, match=r"^proxy: must be http://host:port$"):
        weft.Client("localhost:7070", proxy=proxy)


def test_a_proxy_may_want_a_password():
    """It is in the address, and in no repr."""
    with fake_server() as server:
        proxy = Proxy(server.target)
        with served(proxy) as address, weft.Client(server.target, proxy=f"http://u:secret@{address}") as client:
            assert weft.Health.SERVING == client.health()
            assert "secret" not in repr(client._settings)
    assert [server.target] == proxy.asked
