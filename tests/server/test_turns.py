"""Turns that few have at once: tenants share them, high classes go first, and who waits is told for how long."""

import asyncio
import time
from contextlib import AsyncExitStack
from types import SimpleNamespace

import pytest

from weft_server.errors import DeadlineExpired, Overloaded
from weft_server.models import turns
from weft_server.models.seeing import Seeing
from weft_server.models.turns import Turns
from weft_server.sequence import Priority, Standing


class Asked:
    """Tasks that each hold a turn until `next` lets the oldest one go."""

    def __init__(self, most, weights=None):
        self.turns = Turns(most, weights)
        self.running, self.began, self.tasks = [], [], {}

    async def ask(self, name, standing, deadline=float("inf")):
        """Let one come."""

        async def hold():
            async with self.turns.turn(standing, deadline):
                self.began.append(name)
                goes_on = asyncio.Event()
                self.running.append(goes_on)
                await goes_on.wait()

        self.tasks[name] = asyncio.create_task(hold())
        await settle()

    async def next(self):
        """End the turn that began first."""
        self.running.pop(0).set()
        await settle()

    async def rest(self):
        """End all."""
        while self.running:
            await self.next()


async def settle():
    """Let all tasks come as far as they can."""
    for _ in range(5):
        await asyncio.sleep(0)


@pytest.fixture
def clock(monkeypatch):
    """A clock of the module that stands still until it is set."""
    clock = SimpleNamespace(now=100.0)
    monkeypatch.setattr(turns, "time", SimpleNamespace(monotonic=lambda: clock.now))
    return clock


@pytest.mark.usefixtures("clock")
@pytest.mark.parametrize(("weights", "before"), [(None, 1), ({"many": 2.0}, 2)])
def test_a_flood_of_one_tenant_does_not_hold_up_another(weights, before):
    """However many came before it, another tenant has the turn after the next, or later by what weights say."""

    async def run():
        asked = Asked(2, weights)
        for count in range(20):
            await asked.ask(f"many {count}", Standing(tenant="many"))
        await asked.ask("other", Standing(tenant="other"))
        await asked.rest()
        return asked.began

    began = asyncio.run(run())
    assert 21 == len(began)
    assert began.index("other") <= 2 + before


@pytest.mark.usefixtures("clock")
def test_a_high_class_goes_first():
    """Of those who wait; nobody who has a turn loses it."""

    async def run():
        asked = Asked(1)
        for priority in (Priority.LOW, Priority.LOW, Priority.NORMAL, Priority.HIGH):
            await asked.ask(f"{priority.name} {len(asked.tasks)}", Standing(priority))
        await asked.rest()
        return asked.began

    assert ["LOW 0", "HIGH 3", "NORMAL 2", "LOW 1"] == asyncio.run(run())


def test_who_leaves_is_passed_over():
    """Whether its task was cancelled or its deadline passed, and whether it had its turn already."""

    async def run():
        asked = Asked(1)
        for name, deadline in (("a", 1e9), ("gone", 1e9), ("late", time.monotonic() + 0.01), ("b", 1e9), ("c", 1e9)):
            await asked.ask(name, Standing(), deadline)
        asked.tasks["gone"].cancel()
        with pytest.raises(DeadlineExpired):
            await asked.tasks["late"]
        asked.tasks["a"].cancel()
        await settle()
        assert ["a", "b"] == asked.began
        await asked.rest()
        return asked.began, asked.turns.wait_s()

    assert (["a", "b", "c"], 0.0) == asyncio.run(run())


def test_the_wait_is_that_of_the_class(clock):
    """Who goes before others does not wait for them, and is not refused because of them."""

    async def run():
        asked = Asked(1)
        for count in range(12):
            await asked.ask(str(count), Standing(Priority.LOW))
        for _ in range(4):
            clock.now += 1.0
            await asked.next()
        waits = [asked.turns.wait_s(Standing(priority)) for priority in (Priority.LOW, Priority.HIGH)]
        await asked.rest()
        return waits

    low, high = asyncio.run(run())
    assert 7.0 == pytest.approx(low, rel=0.01)
    assert 0.0 == high


def test_pictures_have_turns_by_class_and_tenant(clock):
    """A request that shows pictures says where it stands, and is told by that."""

    async def run():
        seeing, order = Seeing(1, {"b": 1.0}), []

        async def come(name, standing):
            async with seeing.place(0.0, standing=standing):
                clock.now += 1.0
                order.append(name)

        async with AsyncExitStack() as held:
            await held.enter_async_context(seeing.place(0.0))
            tasks = [asyncio.create_task(come(f"a{count}", Standing(tenant="a"))) for count in range(6)]
            tasks.append(asyncio.create_task(come("b", Standing(tenant="b"))))
            tasks.append(asyncio.create_task(come("high", Standing(Priority.HIGH))))
            await settle()
        await asyncio.gather(*tasks)
        return order

    order = asyncio.run(run())
    assert "high" == order[0]
    assert order.index("b") <= 2


def test_a_deadline_that_a_low_class_would_miss_a_high_one_keeps(monkeypatch):
    """Who would wait too long for others is refused, and who goes before them is not."""
    seeing = Seeing(1)
    monkeypatch.setattr(seeing, "wait_s", lambda standing: 60.0 if standing.priority is Priority.LOW else 0.0)

    async def come(priority):
        async with seeing.place(0.0, time.monotonic() + 30, Standing(priority)):
            return priority

    with pytest.raises(Overloaded, match="pictures of those who wait"):
        asyncio.run(come(Priority.LOW))
    assert Priority.HIGH is asyncio.run(come(Priority.HIGH))
