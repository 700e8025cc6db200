"""What all calls pass: whose place is kept, and what a drain refuses."""

import asyncio
from types import SimpleNamespace

import pytest

from intercepted import gate_of
from weft_server.errors import Draining
from weft_server.models.request_context import RequestContext


async def received(gate, read, call=None):
    """Let a call's message come."""

    async def abort(*_):
        pass

    call = call or RequestContext("Classify", peer="ipv4:127.0.0.1:5")
    return await gate.receive(call, SimpleNamespace(read=read, abort=abort), len)


def test_who_calls_keeps_its_place():
    """Its connection is not ended for a stranger's. What it has sent is noted."""
    gate, used, call = gate_of(), [], RequestContext("Classify", peer="ipv4:127.0.0.1:5")
    gate.traffic.places.use = used.append

    async def whole():
        return b"whole"

    assert b"whole" == asyncio.run(received(gate, whole, call))
    assert 5 == call.usage.request_bytes
    assert (["ipv4:127.0.0.1:5"], 1) == (used, gate.num_active)


def test_nothing_is_read_once_a_drain_has_begun():
    """Not of a call either that was admitted before."""
    gate, read = gate_of(), []

    async def note():
        read.append(1)

    gate.refuse()
    with pytest.raises(Draining):
        asyncio.run(received(gate, note))
    assert ([], 0) == (read, gate.num_active)


def test_a_message_that_comes_whole_as_a_drain_begins_is_refused():
    """It was given up at that moment, or was already there and nobody had taken it yet."""
    gate = gate_of()

    async def whole():
        # The drain begins between the message and who waits for it, so nothing is on its way any more.
        gate.draining = True
        return b"whole"

    with pytest.raises(Draining):
        asyncio.run(received(gate, whole))
    assert (0, 0) == (gate.num_active, gate.traffic.incoming.num_bytes)
