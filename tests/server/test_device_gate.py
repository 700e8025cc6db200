"""The gate to the devices: many use them together, who captures is alone, and nothing goes around it.

On the CPU the same code runs, told that the CPU's memory is far away.
"""

import asyncio
import gc
import threading
import weakref

import numpy as np
import pytest

from toy import WIDTH, Toy
from waiting import until
from weft_server.runtime.blocks import FLOAT
from weft_server.runtime.cuda.copies import Copies
from weft_server.runtime.device import HOST, Device
from weft_server.runtime.device_gate import GATE, DeviceGate
from weft_server.runtime.session import Session, Value

FAR = Device(in_place=False, captures=True)


@pytest.fixture
def toy(tmp_path):
    """The toy, a recurrent network."""
    return Toy(tmp_path)


def fed():
    """What the toy's encoder reads of two sources."""
    return {"input_ids": np.array([[5, 6], [7, 8]]), "lengths": np.full(2, 2, np.int32)}


def bound(session):
    """A session of the toy's encoder over arrays of one row, and what it writes."""
    ids, lengths = (Value.like(each[:1], FAR) for each in fed().values())
    ids.send(fed()["input_ids"][:1])
    lengths.send(fed()["lengths"][:1])
    written = Value((1, WIDTH), FLOAT, FAR)
    blocks = {"input_ids": ids.block, "lengths": lengths.block}
    return session.bind(blocks, {"first_state": written.block}), written


class Helper(threading.Thread):
    """A thread that does one thing."""

    def __init__(self, act):
        super().__init__(daemon=True)
        self._act, self.error = act, None

    def run(self):
        """Do it."""
        try:
            self._act()
        except BaseException as error:  # noqa: BLE001 - the test looks at it
            self.error = error


async def waits_for_a_capture(act):
    """Do it in a thread while this one is alone. Returns how that ended, once it was seen to wait."""
    helper = Helper(act)
    with GATE.alone():
        helper.start()
        await until(lambda: GATE.num_kept_out == 1 or not helper.is_alive())
        assert helper.is_alive()
    await asyncio.to_thread(helper.join, 20)
    assert not helper.is_alive()
    return helper.error


def uses_of(toy):
    """Everything that a thread can do to a device, ready to be done."""
    session = Session(toy.encoder_path, 1, FAR, captures=True)
    one, written = bound(session)
    copies = Copies(1, FAR)
    return {
        "a session is opened": lambda: Session(toy.encoder_path, 1, FAR),
        "a session runs": lambda: session.run(fed()),
        "a session leaves its outputs there": lambda: session.run_there(fed()),
        "a session is bound": lambda: session.bind(one.inputs, one.outputs),
        "a bound session runs": one.run,
        "a bound session reads other memory": lambda: one.rebind(one.inputs),
        "a bound session is captured": one.capture,
        "a tensor is made": lambda: Value((4,), FLOAT, FAR),
        "a tensor is sent": lambda: written.send(np.zeros((1, WIDTH), np.float32)),
        "a tensor is fetched": written.fetch,
        "rows are copied": lambda: copies.run([(written.block, written.block)]),
    }


def test_whatever_uses_a_device_waits_for_a_capture(toy):
    """While a thread captures, no other thread of the process opens, runs, allocates or copies: each waits its turn."""
    uses = uses_of(toy)
    assert dict.fromkeys(uses) == {name: asyncio.run(waits_for_a_capture(use)) for name, use in uses.items()}


def test_the_host_waits_for_no_capture(toy):
    """What is on the CPU in place has nothing to do with the gate."""
    session = Session(toy.encoder_path, 1, HOST)
    with GATE.alone():
        np.testing.assert_allclose(np.tanh(toy.embedding[[5, 7]]), session.run(fed())["first_state"], rtol=1e-6)


def test_a_capture_is_alone_and_waits_for_those_inside():
    """It begins when all others have left, and who comes while it waits comes in behind it. Others run together."""
    gate, order = DeviceGate(), []

    def captures():
        with gate.alone():
            order.append("captured")

    def runs():
        with gate:
            order.append("ran")

    async def run():
        helpers = [Helper(captures), Helper(runs), Helper(captures)]
        with gate:
            helpers[0].start()
            await until(lambda: gate.num_alone == 1)
            helpers[1].start()
            await until(lambda: gate.num_kept_out == 1)
            helpers[2].start()
            await until(lambda: gate.num_alone == 2)
            order.append("left")
        for helper in helpers:
            await asyncio.to_thread(helper.join, 20)

    asyncio.run(run())
    assert ["left", "captured", "captured", "ran"] == order
    helper = Helper(runs)
    with gate:
        helper.start()
        helper.join(20)
    assert ["left", "captured", "captured", "ran", "ran"] == order


def test_the_run_that_captures_is_alone(toy):
    """The first run is one like others: it makes plans and takes memory. The second has the device for itself."""
    session = Session(toy.encoder_path, 1, FAR, captures=True)
    one, written = bound(session)
    seen, opened = [], one.opened

    class Watched:
        def run_with_iobinding(self, *arguments):
            seen.append(GATE.num_alone)
            opened.run_with_iobinding(*arguments)

    one.opened = Watched()
    one.capture()
    one.capture()
    one.run()
    assert [0, 1, 0, 0] == seen
    np.testing.assert_allclose(np.tanh(toy.embedding[[5]]), written.fetch(), rtol=1e-6)


def test_what_one_thread_has_captured_no_other_replays(toy):
    """There ONNX Runtime would capture anew, amid all others. So it is a bug, and it is loud."""
    one, _ = bound(Session(toy.encoder_path, 1, FAR, captures=True))
    one.capture()
    one.run()
    helper = Helper(one.run)
    helper.start()
    helper.join(20)
    assert "another thread has captured this run. This is a bug." == str(helper.error)


def test_what_cannot_be_given_back_shuts_nobody_out():
    """A device that has failed takes nothing back. Others go in, and who wants to be alone is."""
    gate, freed = DeviceGate(), []

    def fails():
        raise RuntimeError("CUDA: an illegal memory access (700)")

    gate.free(fails)
    gate.free(lambda: freed.append("other"))
    with gate.alone():
        gate.free(fails)
    with gate:
        pass
    assert (["other"], 0, 0) == (freed, gate.num_inside, gate.num_alone)


def test_a_session_closes_when_nobody_captures(toy):
    """Its last reference may go at any moment, also in the thread that captures. Its memory goes back afterwards."""
    session = Session(toy.encoder_path, 1, FAR)
    one, _ = bound(session)
    opened = weakref.ref(session.opened)
    del session
    gc.collect()
    assert opened() is not None
    with GATE.alone():
        del one
        gc.collect()
        assert opened() is not None
    assert opened() is None


def test_a_session_closes_at_once_beside_others(toy):
    """Those that run do not keep it open."""
    session = Session(toy.encoder_path, 1, FAR)
    opened = weakref.ref(session.opened)
    with GATE:
        del session
        assert opened() is None
