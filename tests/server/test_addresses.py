"""A server takes its port at every address of its host, or does not start."""

import asyncio
import socket
import subprocess
import sys
import urllib.request
from contextlib import contextmanager

import grpc
import pytest

from http_calls import ask, asked
from http_calls import served as served_by_http
from intercepted import credentials_of, served
from waiting import until
from weft_server.auth.authorization import Authorization
from weft_server.checks.listening import look_at_admin_port, look_at_grpc_port, look_at_http_port
from weft_server.config import ConfigError, read_config
from weft_server.http.endpoints import Endpoints
from weft_server.http.http_server import HttpServer
from weft_server.telemetry.metrics import Metrics
from weft_server.transport import addresses
from weft_server.transport.addresses import NotFree, addresses_of, bound, free_port, take


def _is_here(address):
    try:
        bound(address, 0).close()
    except OSError:
        return False
    return True


LOOPBACK = [address for address in ("127.0.0.1", "::1") if _is_here(address)]
needs_both = pytest.mark.skipif(len(LOOPBACK) < 2, reason="this machine has one loopback address")
HOSTS = {"127.0.0.1": ["127.0.0.1"], "::1": ["::1"], "0.0.0.0": ["0.0.0.0"], "::": ["::"]}
# Who listens already, and who would listen beside it.
CLASHES = [
    ("127.0.0.1", "localhost"),
    ("::1", "localhost"),
    ("127.0.0.1", "0.0.0.0"),
    ("127.0.0.1", "::"),
    ("::1", "::"),
    ("0.0.0.0", "::"),
    ("0.0.0.0", "localhost"),
    ("::", "0.0.0.0"),
    ("::", "127.0.0.1"),
    ("::", "localhost"),
]


@contextmanager
def listening(address):
    """A port on which somebody listens at one address."""
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    with socket.create_server((address, 0), family=family, dualstack_ipv6=address == "::") as listener:
        yield listener.getsockname()[1]


def http(host, port):
    """The small server of HTTP."""
    pages = Endpoints(Metrics(), str, str, Authorization(credentials_of()))
    return HttpServer(host, port, pages, credentials_of())


@pytest.mark.parametrize(("host", "addresses"), HOSTS.items())
def test_numbers_are_one_address(host, addresses):
    """As they are given."""
    if ":" in host and len(LOOPBACK) < 2:
        pytest.skip("this machine has no IPv6")
    assert addresses == addresses_of(host)


@needs_both
def test_localhost_is_both_loopback_addresses():
    """Also where the machine's list of hosts knows one of them: clients try both."""
    assert ["127.0.0.1", "::1"] == sorted(addresses_of("localhost"))


def test_no_port_is_asked_for_to_know_an_address(monkeypatch):
    """It may be taken, or not for everybody."""
    ports = []
    monkeypatch.setattr(addresses, "bound", lambda address, port: ports.append(port) or bound(address, port))
    assert ["127.0.0.1"] == addresses_of("127.0.0.1")
    assert [0] == ports


def test_an_address_that_this_machine_does_not_have_is_left_out(monkeypatch):
    """A name may have some of other machines. One that has no other is no host of this machine."""
    here = [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (address, 0)) for address in ("192.0.2.1", "127.0.0.1")]
    monkeypatch.setattr("weft_server.transport.addresses.socket.getaddrinfo", _among(here, socket.getaddrinfo))
    assert ["127.0.0.1"] == addresses_of("of-two")
    del here[1]
    with pytest.raises(OSError, match="assign requested address"):
        addresses_of("of-two")


def _among(here, really):
    return lambda host, *more, **named: here if host == "of-two" else really(host, *more, **named)


def test_of_one_address_the_system_gives_the_free_port():
    """Whoever listens asks for port 0 itself, so nobody can take the port between the search and that."""
    asked = []
    assert 4321 == take("127.0.0.1", 0, lambda at: asked.append(at) or 4321)
    assert ["127.0.0.1:0"] == asked


@needs_both
@pytest.mark.parametrize(("first", "second"), CLASHES)
def test_one_address_that_is_taken_is_enough(first, second):
    """For each of the three ports, before anything is taken, and by the servers themselves. It is named."""
    with listening(first) as port:
        given = {"repository": "m", "host": second, "admin": True, "admin_host": second, "port": 0, "http_port": 0}
        config = read_config(**given | {"port": port, "admin_port": port, "http_port": port})
        for look, flag in (
            (look_at_grpc_port, "port"),
            (look_at_http_port, "http-port"),
            (look_at_admin_port, "admin"),
        ):
            said = [finding.says for finding in look(config) if finding.state == "error"]
            assert [True] == [f"--{flag}" in each and f":{port}: another process does" in each for each in said]
        with pytest.raises(OSError, match=rf":{port}: Address already in use"):
            http(second, port)


@needs_both
@pytest.mark.parametrize("admin", [False, True])
def test_a_server_of_calls_takes_all_addresses_or_none(tmp_path, admin):
    """Also when an address was taken after the settings were looked at: the start says which."""

    async def scenario():
        for address in LOOPBACK:
            with listening(address) as port:
                host = {"admin_host": "localhost", "admin_port": port} if admin else {"host": "localhost", "port": port}
                with pytest.raises(ConfigError, match=rf"cannot listen on \S+:{port}"):
                    await served(tmp_path, admin=admin, **host).__aenter__()
                with pytest.raises(ConfigError, match=rf":{port} for HTTP calls: .*; --api-port takes another"):
                    await served_by_http(host="localhost", api_port=port).__aenter__()

    asyncio.run(scenario())


@needs_both
def test_a_free_port_is_one_at_all_addresses(tmp_path):
    """Port 0, for gRPC, for calls by HTTP, and for probes."""

    async def scenario():
        async with served(tmp_path, host="localhost") as (target, _, _):
            port = target.rpartition(":")[2]
            for address in ("127.0.0.1", "[::1]"):
                async with grpc.aio.insecure_channel(f"{address}:{port}") as channel:
                    await asyncio.wait_for(channel.channel_ready(), 30)
        async with served_by_http(host="localhost") as server:
            assert [200, 200] == [(await ask(server, asked(), host=address))[0] for address in LOOPBACK]

    asyncio.run(scenario())
    server = http("localhost", 0)
    server.start()
    try:
        for address in ("127.0.0.1", "[::1]"):
            with urllib.request.urlopen(f"http://{address}:{server.port}/livez", timeout=30) as answer:
                assert 200 == answer.status
    finally:
        server.stop()
    http("localhost", server.port).stop()


def test_what_was_taken_is_let_go_when_another_address_is_not_free(monkeypatch):
    """A server of HTTP that does not start leaves no listener behind."""
    with listening("127.0.0.1") as port, pytest.raises(OSError, match="in use"):
        http("127.0.0.1", port)
    addresses = [LOOPBACK[0], LOOPBACK[0]]  # the second cannot be had beside the first
    monkeypatch.setattr("weft_server.http.http_server.addresses_of", lambda _: addresses)
    with pytest.raises(OSError, match="in use"):
        http("localhost", port)
    monkeypatch.undo()
    http("127.0.0.1", port).stop()


def test_a_name_of_several_addresses_is_given_to_grpc_address_by_address():
    """Of a name it would take what it gets."""
    given = []

    def listen(target):
        given.append(target)
        return int(target.rpartition(":")[2])

    port = free_port(LOOPBACK)
    assert port == take("localhost", port, listen)
    assert {f"[{each}]:{port}" if ":" in each else f"{each}:{port}" for each in LOOPBACK} == set(given)

    def refuse(target):
        raise RuntimeError(target)

    with pytest.raises(NotFree, match=str(port)):
        take("localhost", port, refuse)


def test_where_no_port_can_be_had_the_system_says_why():
    """After some tries: 192.0.2.0/24 is nobody's (RFC 5737)."""
    with pytest.raises(OSError, match="assign"):
        free_port(["192.0.2.1"])


@pytest.mark.e2e
def test_of_two_servers_that_start_at_once_one_does_not(tmp_path):
    """Whoever comes second ends with a line that names the address. Nobody's calls are shared."""
    (tmp_path / "m" / "1").mkdir(parents=True)
    port, one, other = (free_port(LOOPBACK) for _ in range(3))
    command = [sys.executable, "-m", "weft_server", str(tmp_path), f"--port={port}"]
    hosts = {"localhost": one, LOOPBACK[-1]: other}
    logs = {host: tmp_path / f"log-{http_port}" for host, http_port in hosts.items()}
    both = []
    for host, http_port in hosts.items():
        with logs[host].open("w") as log:
            both.append(subprocess.Popen([*command, "--host", host, f"--http-port={http_port}"], stderr=log))
    try:
        asyncio.run(until(lambda: any(each.poll() is not None for each in both)))
        (loser,) = (each for each in both if each.poll() is not None)
        (winner,) = (each for each in both if each is not loser)
        said = logs[[*hosts][both.index(loser)]].read_text()
        assert (1, True) == (loser.returncode, f":{port}" in said.splitlines()[-1])
        asyncio.run(until(lambda: "listening" in logs[[*hosts][both.index(winner)]].read_text()))
        assert winner.poll() is None
    finally:
        for each in both:
            each.kill()
            each.wait()
