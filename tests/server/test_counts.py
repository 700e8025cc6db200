"""What is counted while it is held comes down again, and what strangers name is forgotten."""

import asyncio
import gc

import numpy as np
import pytest

from weft_server.engine.batch_window import GATHER_TURNS, BatchWindow
from weft_server.engine.queue_limits import MEMORY_S, QueueLimits, Throughput
from weft_server.errors import Overloaded
from weft_server.models.held_bytes import MAX_BYTES, ConstraintMemory, HeldBytes
from weft_server.models.label_embeddings import LabelEmbedding, LabelEmbeddings
from weft_server.sequence import Priority, Standing
from weft_server.telemetry.metrics import Metrics


def test_places_come_back_to_their_class_and_tenant():
    """Who has given all back finds as many as before, and those who wait behind nobody are told of no wait."""
    low, high, many, few = Standing(Priority.LOW), Standing(Priority.HIGH), Standing(tenant="a"), Standing(tenant="b")
    bounds = QueueLimits(10, 100)
    for standing in (low, high, many, few) * 2:
        bounds.check_places(1, standing)
        bounds.take(1, standing)
        assert 1 == bounds.num_places
        assert 1 == bounds.num_ahead(Standing(Priority.LOW))
        bounds.give_back(1, standing)
    assert 0 == bounds.num_places
    assert [0] * 4 == [bounds.num_ahead(standing) for standing in (low, high, many, few)]
    bounds.check_places(8, many)
    bounds.check_places(5, low)
    with pytest.raises(Overloaded, match=r"^0 requests are waiting already, and 6 more do not fit$"):
        bounds.check_places(6, low)


def test_a_tenant_has_turns_beside_those_who_are_there_alone():
    """Of tenants that have left nobody waits, so they have no turns."""
    bounds = QueueLimits(100, 100)
    bounds.take(20, Standing(tenant="a"))
    for number in range(5):
        bounds.take(1, Standing(tenant=f"gone {number}"))
        bounds.give_back(1, Standing(tenant=f"gone {number}"))
    assert 1 == bounds.num_ahead(Standing(tenant="b"))
    bounds.take(1, Standing(tenant="b"))
    assert 4 == bounds.num_ahead(Standing(tenant="b"))


class _Held:
    """As a constraint of a grammar: it says how many bytes it holds."""

    def __init__(self, num_bytes):
        self.num_bytes = num_bytes


def test_what_constraints_hold_is_free_when_nobody_has_them():
    """However their requests have ended. One tenant holds half of it."""
    memory, half = ConstraintMemory(), _Held(MAX_BYTES // 2)
    memory.hold(half, "a")
    with pytest.raises(Overloaded, match=r"^this constraint takes 1 bytes, and others hold the room for that$"):
        memory.hold(_Held(1), "a")
    memory.hold(_Held(1), "b")
    del half
    gc.collect()
    memory.hold(_Held(MAX_BYTES // 2), "a")


def test_bytes_come_back_to_their_tenant():
    """One of a tenant's share is refused while others hold it, and taken when they have ended. So is one of all."""
    held = HeldBytes("this takes", 100, 50)
    held.take(40, "a")
    with pytest.raises(Overloaded, match=r"^this takes 20 bytes, and others hold the room for that$"):
        held.take(20, "a")
    held.take(60, "b")  # the only ones of its own, within what all may hold
    with pytest.raises(Overloaded):
        held.take(1, "")
    held.give_back(60, "b")
    held.give_back(40, "a")
    assert 0 == held.held
    held.take(200, "a")  # the only ones
    with pytest.raises(Overloaded):
        held.take(1, "a")
    held.give_back(200, "a")
    held.take(50, "a")
    assert 50 == held.held


def test_a_pace_fades_with_the_time():
    """What was seen long ago counts less than what is seen now, and too little to go by says nothing."""
    throughput = Throughput()
    throughput.note(1, 0.25)
    assert 0.0 == throughput.wait_s(3)
    throughput.note(9, 0.75)
    assert pytest.approx(0.3, rel=0.1) == throughput.wait_s(3)
    for _ in range(20):
        throughput.note(1, 1.0)
    assert pytest.approx(3.0, rel=0.05) == throughput.wait_s(3)
    throughput.fade(10 * MEMORY_S)
    assert 0.0 == throughput.wait_s(3)


def test_a_lane_is_woken_once_for_those_who_come_together():
    """Some turns after the last one, more of them where many are, and again for those who come after that."""

    async def run():
        woken, gathering = [], BatchWindow(asyncio.get_running_loop())

        async def turns_until_woken(num_here):
            woken.clear()
            for _ in range(3):
                gathering.note(num_here, lambda: woken.append(1))
            for turn in range(1000):
                if woken:
                    return turn
                await asyncio.sleep(0)
            return None

        first, more, last = [await turns_until_woken(num_here) for num_here in (1, 4, 1000)]
        assert [1] == woken
        assert GATHER_TURNS <= first < more < last < 100

    asyncio.run(run())


def test_labels_bytes_are_those_that_are_kept():
    """The oldest leave when the room is full, the gauge follows, and what is kept twice is counted once."""
    metrics = Metrics().for_model("m", 1, "match")
    vectors = LabelEmbeddings(metrics, max_bytes=1500)
    vector = LabelEmbedding(np.zeros(8, np.float32), 1)
    sizes = []
    for text in ("a", "a", "b", "c"):
        vectors.keep("", text, vector)
        sizes.append(metrics.label_cache_bytes)
    assert [sizes[0] * count for count in (1, 1, 2, 3)] == sizes
    assert vectors.find("", "a")
    vectors.keep("", "d", vector)
    assert sizes[-1] == metrics.label_cache_bytes
    assert [True, False, True, True] == [vectors.find("", text) is not None for text in "abcd"]
    assert vectors.find("other", "a") is None
