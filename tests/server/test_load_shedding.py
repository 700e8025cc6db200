"""Load shedding: how many refusals a caller hears at once, and that nobody else waits for the others."""

import asyncio

import pytest

from http_calls import asked, connected
from http_calls import served as served_by_http
from intercepted import REFLECTION, ask, entry_of, open_channel, run, served
from waiting import until
from weft_server.admission import load_shedding
from weft_server.admission.load_shedding import BURST, HOLD_S, MAX_CALLERS, RATE, LoadShedding
from weft_server.errors import Overloaded

GENERATE = "/weft.v1.GenerationService/Generate"


class Clock:
    """Time that passes only when a test says so. Whoever sleeps is waked by the test."""

    def __init__(self):
        self.now, self.asleep = 100.0, []

    def monotonic(self):
        """As the module's."""
        return self.now

    async def sleep(self, seconds):
        """As the module's."""
        self.asleep.append((seconds, asyncio.get_running_loop().create_future()))
        await self.asleep[-1][1]


@pytest.fixture
def clock(monkeypatch):
    """The clock of the module under test."""
    clock = Clock()
    monkeypatch.setattr(load_shedding, "time", clock)
    monkeypatch.setattr(load_shedding, "asyncio", clock)
    return clock


async def told(braked, caller, number):
    """How many of so many refusals are told at once. The others are left waiting."""
    tasks = [asyncio.create_task(braked.refused(caller)) for _ in range(number)]
    await asyncio.sleep(0)
    return sum(task.done() for task in tasks)


def test_a_flood_hears_so_many_at_once_and_the_others_later(clock):
    """BURST come together, then RATE in a second. Each of the others is told HOLD_S later, and no loop sleeps."""

    async def scenario():
        braked = LoadShedding()
        assert BURST == await told(braked, "flood", int(BURST) + 7)
        assert [HOLD_S] * 7 == [seconds for seconds, _ in clock.asleep]
        clock.now += 10.5 / RATE
        assert 10 == await told(braked, "flood", 12)
        clock.now += 3600
        assert BURST == await told(braked, "flood", 100)
        assert len(clock.asleep) == braked.num_held
        for _, future in clock.asleep:
            future.set_result(None)
        await until(lambda: braked.num_held == 0)

    run(scenario())


def test_each_caller_has_refusals_of_their_own(clock):
    """Who floods takes none of another's."""

    async def scenario():
        braked = LoadShedding()
        await told(braked, "flood", 500)
        assert 5 == await told(braked, "other", 5)

    run(scenario())


def test_what_a_flood_leaves_behind_is_bounded(clock, monkeypatch):
    """So many wait and so many callers are known, not more. Who goes while they wait leaves their place."""
    monkeypatch.setattr(load_shedding, "MAX_HELD", 3)

    async def scenario():
        braked = LoadShedding()
        assert 95 + 2 == await told(braked, "flood", int(BURST) + 50)
        assert 3 == braked.num_held
        gone = asyncio.create_task(braked.refused("flood"))
        await gone
        for _, future in clock.asleep[:1]:
            future.cancel()
        await until(lambda: braked.num_held == 2)
        for number in range(MAX_CALLERS + 50):
            await braked.refused(f"{number}")
        assert MAX_CALLERS == len(braked.buckets)
        # Forgotten are those that were refused longest ago.
        assert [False, True] == [name in braked.buckets for name in ("flood", f"{MAX_CALLERS + 49}")]

    run(scenario())


def test_few_connections_are_held(clock, monkeypatch):
    """Where a refusal holds a connection, an eighth of all are held, and further refusals are told at once."""

    async def scenario():
        braked = LoadShedding(max_connections=40)
        flood = [asyncio.create_task(braked.refused("flood", holds_connection=True)) for _ in range(int(BURST) + 12)]
        await asyncio.sleep(0)
        assert [5, 5] == [braked.num_connections_held, sum(not task.done() for task in flood)]
        assert 0 == await told(braked, "flood", 3)
        for _, future in clock.asleep:
            future.set_result(None)
        await until(lambda: (braked.num_held, braked.num_connections_held) == (0, 0))

    run(scenario())


def test_a_flood_of_refusals_keeps_nobody_else_waiting(tmp_path, monkeypatch):
    """While a connection waits for its refusals, for ever here, others are answered, and refused, as ever."""
    monkeypatch.setattr(load_shedding, "HOLD_S", 1e6)

    async def scenario():
        entries = [entry_of("m", full=True)]
        at = served(tmp_path, tokens=None, entries=entries)
        async with at as (target, _, _), open_channel(target) as flood, open_channel(target) as other:
            asked = [asyncio.create_task(ask(flood, GENERATE)) for _ in range(3 * int(BURST))]
            await until(lambda: sum(task.done() for task in asked) >= BURST)
            assert ("OK", "") == await ask(other, REFLECTION, b"\x3a\x00")
            assert ("RESOURCE_EXHAUSTED", "QUEUE_FULL") == await ask(other, GENERATE)
            told = [task.result() for task in asked if task.done()]
            assert {("RESOURCE_EXHAUSTED", "QUEUE_FULL")} == set(told)
            assert len(told) < len(asked)
            for task in asked:
                task.cancel()

    run(scenario())


def test_who_is_told_later_by_http_holds_no_bytes_meanwhile(monkeypatch):
    """A model that finds no room for a request keeps nothing of it, although its caller waits for the answer."""
    monkeypatch.setattr(load_shedding, "BURST", 0.0)
    monkeypatch.setattr(load_shedding, "HOLD_S", 60.0)
    held = []

    async def refuse(*_):
        held.append(server.gate.traffic.incoming.num_bytes)
        raise Overloaded("QUEUE_FULL", "no room")

    async def scenario():
        nonlocal server
        async with served_by_http(Classify=refuse) as server, connected(server) as (_, writer):
            writer.write(asked(b'{"text": "%s"}' % (1000 * b"a")))
            await until(lambda: held and not server.gate.traffic.incoming.num_bytes)
            assert 1 == server.gate.num_active

    server = None
    run(scenario())
    assert held[0] >= 1000
