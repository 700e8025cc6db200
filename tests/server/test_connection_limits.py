"""Connections of the ports of calls: who is hung up on while places are few, and how many were."""

import asyncio
import socket
from contextlib import ExitStack
from pathlib import Path

import pytest

from waiting import until
from weft_server.transport import connection_limits
from weft_server.transport.connection_limits import ConnectionLimits
from weft_server.transport.connections import Connections


class Listed(Connections):
    """Connections as a test says, in place of the system's. Those of `others` came to another port."""

    def __init__(self, peers, others=()):
        super().__init__()
        self.there, self.others, self.ended, self.num_looks = list(peers), list(others), [], 0

    def may_be(self, count):
        """As the system's."""
        return len(self.there) + len(self.others) >= count

    def by_port(self):
        """As the system's."""
        self.num_looks += 1
        return {1: list(self.there), 2: list(self.others)}

    def hang_up(self, peers):
        """As the system's."""
        self.ended += peers
        self.there = [peer for peer in self.there if peer not in self.ended]
        return len(peers)


def _key(number):
    return f"127.0.0.1:{number}"


def _ended(peers, used=(), watching=(), others=()):
    """Whom a server with 20 places at each port hangs up on, in that order."""
    connections = Listed(map(_key, peers), map(_key, others))

    async def scenario():
        limits = ConnectionLimits(connections, 20)
        limits.watching = lambda: [f"ipv4:{_key(number)}" for number in watching]
        for number in used:
            limits.use(f"ipv4:{_key(number)}")
        looking = asyncio.create_task(limits.keep_looking())
        await until(lambda: not connections.may_be(15) or connections.num_looks > 4)
        looking.cancel()
        assert limits.num_ended == len(connections.ended)

    asyncio.run(scenario())
    return [int(peer.rpartition(":")[2]) for peer in connections.ended]


@pytest.mark.parametrize(
    ("peers", "used", "watching", "ended"),
    [
        (range(14), (), (), []),
        (range(18), (), (), [0, 1, 2]),
        (range(18), range(1, 18), (), [0]),
        (range(18), range(18), (), []),
        (range(19), range(14), (0, *range(14, 19)), [14]),
        (range(20), range(10), (0, *range(10, 20)), [10, 11]),
        (range(20), range(10), range(10, 18), [18, 19]),
    ],
    ids=["room", "strangers", "one stranger", "callers", "watches", "many watches", "strangers before watches"],
)
def test_who_never_called_makes_room_the_oldest_first(peers, used, watching, ended, monkeypatch):
    """A quarter of the places is kept free of strangers, a tenth of those that only watch. Who called stays."""
    monkeypatch.setattr(connection_limits, "LOOK_S", 0.001)
    assert ended == _ended(peers, used, watching)


@pytest.mark.parametrize("others", [range(100, 115), range(100, 104)], ids=["as many as may be", "few"])
def test_each_port_has_its_own_places(others, monkeypatch):
    """A port that is full makes room, whatever place another one has. Those of the other one stay."""
    monkeypatch.setattr(connection_limits, "LOOK_S", 0.001)
    assert [0, 1, 2] == _ended(range(18), others=others)
    assert [] == _ended(range(14), others=others)


def test_who_has_just_come_is_not_hung_up_on():
    """The first look knows nobody: each may be about to call."""
    limits = ConnectionLimits(Connections(), 20)
    assert [] == limits.too_many({1: [_key(number) for number in range(20)]})
    assert [_key(0)] == limits.too_many({1: [_key(0), *(_key(number) for number in range(100, 115))]})


@pytest.mark.skipif(not Path("/proc/self/fd").exists(), reason="this system does not list a process's files")
def test_those_that_are_hung_up_on_are_counted_and_no_others():
    """Their callers read the end. One that has gone does not count, and the rest can be used."""
    connections = Connections()
    with ExitStack() as sockets, socket.create_server(("127.0.0.1", 0)) as listener:
        connections.ports.add(listener.getsockname()[1])
        callers = [sockets.enter_context(socket.create_connection(listener.getsockname())) for _ in range(3)]
        taken = [sockets.enter_context(listener.accept()[0]) for _ in callers]
        peers = [_key(caller.getsockname()[1]) for caller in callers]
        (port,) = connections.ports
        found = connections.by_port()
        assert (3, {port: sorted(peers)}) == (connections.count(), {port: sorted(found[port])})
        assert 2 == connections.hang_up([*peers[:2], _key(1)])
        assert [b"", b""] == [caller.recv(1) for caller in callers[:2]]
        taken[2].sendall(b"x")
        assert b"x" == callers[2].recv(1)


def test_the_system_is_asked_only_where_places_or_memory_are_scarce(monkeypatch):
    """Peers that have called are known up to twice the places of all ports. One more, and who has gone is forgotten."""
    monkeypatch.setattr(connection_limits, "LOOK_S", 0.001)
    connections = Listed(())
    connections.ports.add(1)

    async def scenario():
        limits = ConnectionLimits(connections, 20)
        for number in range(40):
            limits.use(f"ipv4:{_key(number)}")
        looking = asyncio.create_task(limits.keep_looking())
        await asyncio.sleep(0.02)
        assert 0 == connections.num_looks
        limits.use(f"ipv4:{_key(40)}")
        await until(lambda: connections.num_looks)
        looking.cancel()

    asyncio.run(scenario())


@pytest.mark.skipif(not Path("/proc/self/fd").exists(), reason="this system does not list a process's files")
def test_what_a_connection_has_sent_is_known():
    """As a count of bytes, of those that are asked for and are here."""
    connections = Connections()
    with socket.create_server(("127.0.0.1", 0)) as listener, socket.create_connection(listener.getsockname()) as caller:
        connections.ports.add(listener.getsockname()[1])
        with listener.accept()[0] as taken:
            caller.sendall(b"abc")
            assert b"abc" == taken.recv(3)
            peer = _key(caller.getsockname()[1])
            assert {peer: 3} == connections.bytes_received([peer, _key(1)])
            assert {} == connections.bytes_received([])
