"""What peers hold: counts that come down again, and whose share is full."""

import asyncio
import time
from types import SimpleNamespace

import grpc.aio
import pytest

from waiting import until
from weft_server.errors import Overloaded
from weft_server.models.request_context import RequestContext
from weft_server.transport.connections import Connections, peer_key
from weft_server.transport.handlers import sending
from weft_server.transport.incoming import Incoming
from weft_server.transport.outgoing import MIN_BYTES_PER_S, Outgoing
from weft_server.transport.traffic import Traffic

MEBIBYTE = 1 << 20


def _call(tenant="", peer="ipv4:127.0.0.1:1"):
    call = RequestContext("a", tenant=tenant)
    call.peer = peer
    return call


def test_messages_are_held_up_to_a_bound():
    """What a message adds is free again when its call ends. One that is the only one may have any size."""
    incoming = Incoming(Connections(), max_bytes=10 * MEBIBYTE)
    first, second = _call(peer="a"), _call(peer="b")
    incoming.hold(first, 20 * MEBIBYTE)
    with pytest.raises(Overloaded, match=r"^requests of 20,971,520 bytes are held already$") as refused:
        incoming.hold(second, 1)
    assert "BYTE_BUDGET" == refused.value.reason
    incoming.let_go(second)
    incoming.let_go(first)
    assert 0 == incoming.num_bytes
    incoming.hold(first, 4 * MEBIBYTE)
    incoming.hold(second, 6 * MEBIBYTE)


def test_an_empty_message_leaves_no_name_behind():
    """Who holds it is a stranger's connection, of which there are ever new ones."""
    incoming = Incoming(Connections())
    call = _call(peer="ipv4:127.0.0.1:7")
    incoming.hold(call, 0)
    incoming.let_go(call)
    assert {} == incoming.held_by


@pytest.mark.parametrize("who", [{"tenant": "a"}, {"peer": "ipv4:127.0.0.1:7"}])
def test_one_caller_does_not_hold_all(who):
    """A tenant, or a stranger's connection, holds four fifths. The rest is for others, and what is let go is free."""
    incoming = Incoming(Connections(), max_bytes=10 * MEBIBYTE)
    held = [_call(**who) for _ in range(9)]
    for call in held[:8]:
        incoming.hold(call, MEBIBYTE)
    with pytest.raises(Overloaded, match="of one caller"):
        incoming.hold(held[8], MEBIBYTE)
    incoming.let_go(held[8])
    incoming.hold(_call("b", "ipv4:127.0.0.1:8"), MEBIBYTE)
    incoming.let_go(held[0])
    incoming.hold(held[8], MEBIBYTE)


def _open(traffic, tenant=""):
    call = RequestContext("a", tenant=tenant)
    traffic.open(call)
    return call


def test_open_calls_are_bounded():
    """In all, and half of them for each who is known by name. Those that ended, and those refused, are not counted."""
    traffic = Traffic(max_open_calls=8)
    calls = [_open(traffic, "known") for _ in range(4)]
    with pytest.raises(Overloaded, match="of known, 4 calls") as refused:
        _open(traffic, "known")
    assert "TOO_MANY_CALLS" == refused.value.reason
    calls += [_open(traffic) for _ in range(4)]
    with pytest.raises(Overloaded, match="8 calls are open"):
        _open(traffic)
    for call in calls:
        traffic.close(call)
    assert 0 == traffic.num_open
    _open(traffic, "known")


def test_who_is_known_late_has_no_more_calls():
    """Whoever shows a certificate alone is known when the handler begins, and has the same share."""
    traffic = Traffic(max_open_calls=8)
    calls = [_open(traffic) for _ in range(5)]
    for call in calls[:4]:
        call.tenant = "signed"
        traffic.claim(call)
    calls[4].tenant = "signed"
    with pytest.raises(Overloaded, match="of signed, 4 calls"):
        traffic.claim(calls[4])
    for call in calls:
        traffic.close(call)
    assert 0 == traffic.num_open
    traffic.claim(_open(traffic, "signed"))


def _probe(traffic, peer):
    call = RequestContext("Check")
    call.peer = peer
    traffic.open_probe(call)
    return call


def test_probes_are_bounded_apart(monkeypatch):
    """Of each connection, and in all. They take no place of other calls, nor do other calls take theirs."""
    monkeypatch.setattr("weft_server.transport.traffic.MAX_PROBES_PER_CONNECTION", 3)
    monkeypatch.setattr("weft_server.transport.traffic.MAX_PROBES", 2)
    traffic = Traffic(max_open_calls=1, max_connections=1)
    _open(traffic)
    probes = [_probe(traffic, "ipv4:127.0.0.1:1") for _ in range(3)]
    with pytest.raises(Overloaded, match="3 probes of this connection"):
        _probe(traffic, "ipv4:127.0.0.1:1")
    probes.append(_probe(traffic, "ipv4:127.0.0.1:2"))
    ended = []
    monkeypatch.setattr(traffic.connections, "hang_up", lambda peers: len(ended.extend(peers) or ended))
    probes.append(_probe(traffic, "ipv4:127.0.0.1:3"))
    assert (["127.0.0.1:1"], 1) == (ended, traffic.num_ended)
    for call in probes:
        traffic.close(call)
    assert 0 == traffic.num_probes
    _probe(traffic, "ipv4:127.0.0.1:1")


class _Sending:
    """The context of a call whose message never comes whole."""

    def __init__(self):
        self._ended = asyncio.Event()

    async def read(self):
        """As gRPC's."""
        await self._ended.wait()
        raise grpc.aio.AbortError

    async def abort(self, *_):
        """As gRPC's."""
        self._ended.set()
        raise grpc.aio.AbortError


def test_of_too_many_messages_on_their_way_those_of_who_has_most_end(monkeypatch):
    """The oldest first, so that as many are left as may be. Another's stays, though it is older."""
    monkeypatch.setattr("weft_server.transport.incoming.SWEEP_S", 0.001)

    async def scenario():
        incoming = Incoming(Connections(), max_message_bytes=1, max_receiving=3)
        calls = [_call("honest"), *(_call("flood") for _ in range(5))]
        reads = [asyncio.create_task(incoming.read(call, _Sending())) for call in calls]
        await until(lambda: incoming.num_receiving == 3)
        assert [False, True, True, True, False, False] == [read.done() for read in reads]
        for read in reads[1:4]:
            with pytest.raises(Overloaded, match="too many messages are on their way"):
                await read
        assert 3 == incoming.num_ended
        for read in reads:
            read.cancel()

    asyncio.run(scenario())


def test_who_has_much_to_read_asks_no_more():
    """A caller with more than half of what may be unread is refused, until it has read. Others are not."""

    async def scenario():
        outgoing = Outgoing(Connections(), max_bytes=10 * MEBIBYTE)
        first, next_one, other = _call("a"), _call("a"), _call("b")
        outgoing.begin(first, 6 * MEBIBYTE)
        with pytest.raises(Overloaded, match="6,291,456 bytes to read first"):
            outgoing.check(next_one)
        outgoing.check(other)
        outgoing.end(first)
        outgoing.check(next_one)
        assert (0, 0) == (outgoing.num_bytes, outgoing.num_sending)

    asyncio.run(scenario())


@pytest.mark.parametrize(
    ("said", "key"),
    [
        ("ipv4:127.0.0.1:5000", "127.0.0.1:5000"),
        ("ipv6:%5B::1%5D:5000", "::1:5000"),
        ("ipv6:%5B::ffff:127.0.0.1%5D:5000", "127.0.0.1:5000"),
        ("ipv6:%5Bfe80::1%25eth0%5D:5000", "fe80::1:5000"),
        ("unix:", ":"),
    ],
)
def test_a_peer_has_one_key(said, key):
    """However gRPC spells it, and the system."""
    assert key == peer_key(said)


def test_of_too_much_unread_the_largest_holder_s_goes(monkeypatch):
    """Two tenants have many small answers on many connections, and one honest caller has a large one: theirs go."""
    monkeypatch.setattr("weft_server.transport.outgoing.SWEEP_S", 0.01)
    ended = []

    class Heard(Connections):
        def hang_up(self, peers):
            ended.extend(peers)
            return len(ended)

    async def scenario():
        outgoing = Outgoing(Heard(), max_bytes=20 * MEBIBYTE)
        honest = _call("honest", "ipv4:127.0.0.1:9")
        outgoing.begin(honest, 4 * MEBIBYTE)
        for number in range(10):
            outgoing.begin(_call("greedy", f"ipv4:127.0.0.1:{100 + number}"), 2 * MEBIBYTE)
        # A sweep may come before the last ones have stood for long.
        await until(lambda: len(ended) > 1)
        assert not honest.given_up
        assert {f"127.0.0.1:{100 + number}" for number in range(10)} > set(ended)
        assert 2 == len(ended)

    asyncio.run(scenario())


def test_who_reads_too_slowly_is_hung_up_on(monkeypatch):
    """After the timeout, and the time that so many bytes may take. Who shares the connection is told too."""
    monkeypatch.setattr("weft_server.transport.outgoing.SWEEP_S", 0.001)
    now = 100.0
    monkeypatch.setattr("weft_server.transport.outgoing.time", SimpleNamespace(monotonic=lambda: now))
    ended = []

    class Heard(Connections):
        def hang_up(self, peers):
            ended.extend(peers)
            return 1

    async def scenario():
        nonlocal now
        outgoing = Outgoing(Heard(), timeout_s=30.0)
        slow, beside, large, new = (_call(peer=f"ipv4:127.0.0.1:{number}") for number in (1, 1, 2, 3))
        outgoing.begin(slow, 0)
        outgoing.begin(large, 10 * MIN_BYTES_PER_S)
        now += 20
        outgoing.begin(beside, 0)
        outgoing.begin(new, 0)
        now += 11
        await until(lambda: slow.given_up)
        assert (["127.0.0.1:1"], 1) == (ended, outgoing.num_ended)
        assert ["ANSWER_UNREAD", "ANSWER_UNREAD", "", ""] == [each.given_up for each in (slow, beside, large, new)]
        now += 10
        await until(lambda: large.given_up)
        assert (["127.0.0.1:1", "127.0.0.1:2"], "") == (ended, new.given_up)

    asyncio.run(scenario())


def test_too_many_unread_answers_are_too_much(monkeypatch):
    """However small they are."""
    monkeypatch.setattr("weft_server.transport.outgoing.SWEEP_S", 0.01)
    monkeypatch.setattr("weft_server.transport.outgoing.MAX_SENDING", 5)

    async def scenario():
        outgoing = Outgoing(Connections())
        hostile = [_call(peer="ipv4:127.0.0.1:1") for _ in range(5)]
        honest = _call(peer="ipv4:127.0.0.1:2")
        for call in (*hostile, honest):
            outgoing.begin(call, 0)
        await until(lambda: hostile[0].given_up)
        assert not honest.given_up
        for call in (*hostile, honest):
            outgoing.end(call)
        assert (0, 0) == (outgoing.num_bytes, outgoing.num_sending)

    asyncio.run(scenario())


def test_to_end_the_largest_of_many_takes_little(monkeypatch):
    """A sweep stands in the event loop's way: 12,000 answers on 6,000 connections take a second, and no minutes."""
    monkeypatch.setattr("weft_server.transport.outgoing.MAX_SENDING", 1000)

    async def scenario():
        outgoing = Outgoing(Connections(), timeout_s=1000)
        calls = [_call(peer=f"ipv4:127.0.0.1:{number % 6000}") for number in range(12_000)]
        for call in calls:
            outgoing.begin(call, 1)
        began = time.process_time()
        monkeypatch.setattr("weft_server.transport.outgoing.SWEEP_S", -1)
        outgoing.give_up()
        assert time.process_time() - began < 10
        assert 1000 == sum(not call.given_up for call in calls)

    asyncio.run(scenario())


def test_who_goes_during_a_write_has_cancelled():
    """InternalError is what gRPC says then; its own cancellation comes later. The answer is counted no more."""
    outgoing, call = Outgoing(Connections()), _call()

    async def write(_):
        assert 3 == outgoing.num_bytes
        raise grpc.aio.InternalError("the stream is gone")

    async def send():
        with pytest.raises(asyncio.CancelledError):
            await sending(outgoing, call, SimpleNamespace(write=write), b"abc")

    asyncio.run(send())
    assert (0, 3) == (outgoing.num_bytes, call.usage.response_bytes)
