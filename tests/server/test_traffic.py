"""What peers hold: counts that come down again, and whose share is full."""

import asyncio

import pytest

from weft_server.door.connections import Connections, peer_key
from weft_server.door.incoming import Incoming
from weft_server.door.outgoing import Outgoing
from weft_server.door.traffic import Traffic
from weft_server.errors import Overloaded
from weft_server.serving.call import Call

MEBIBYTE = 1 << 20


def _call(tenant="", peer="ipv4:127.0.0.1:1"):
    call = Call("a", tenant=tenant)
    call.came_by(peer)
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


def test_open_calls_are_bounded():
    """In all, and half of them for each who is known by name. Probes always find a place. Ended ones are free."""
    traffic = Traffic(max_open_calls=8)
    calls = [Call("a", tenant="known") for _ in range(4)]
    for call in calls:
        traffic.open(call, is_probe=False)
    with pytest.raises(Overloaded, match="of known, 4 calls") as refused:
        traffic.open(Call("a", tenant="known"), is_probe=False)
    assert "TOO_MANY_CALLS" == refused.value.reason
    others = [Call("a") for _ in range(4)]
    for call in others:
        traffic.open(call, is_probe=False)
    with pytest.raises(Overloaded, match="8 calls are open"):
        traffic.open(Call("a"), is_probe=False)
    probe = Call("Check")
    traffic.open(probe, is_probe=True)
    for call in (*calls, *others, probe):
        traffic.close(call)
    assert 0 == traffic.num_open
    traffic.open(Call("a", tenant="known"), is_probe=False)


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
    ],
)
def test_a_peer_has_one_key(said, key):
    """However gRPC spells it, and the system."""
    assert key == peer_key(said)
