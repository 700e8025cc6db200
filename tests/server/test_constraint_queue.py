"""Waiting for a constraint is a queue with classes, tenants and bounds. What all of them hold is bounded too."""

import asyncio
import gc
import json
import os
import threading
import time
from pathlib import Path
from types import SimpleNamespace

import pytest

from loaded import Loaded, ask
from weft_proto.v1 import common_pb2
from weft_server.engine.failure import FailureBudget
from weft_server.errors import DeadlineExpired, InvalidRequest, Overloaded, RequestError
from weft_server.logits_processors import constraint as constraint_module
from weft_server.logits_processors.constraint import Constraint
from weft_server.models import held_bytes, turns
from weft_server.models.held_bytes import HeldBytes
from weft_server.models.worker_pool import WorkerPool
from weft_server.models.worker_queue import ConstraintQueue
from weft_server.process.threads import deep_pool
from weft_server.sequence import ANYBODY, Priority, Standing
from weft_server.telemetry.metrics import Metrics

IDS = common_pb2.TokenIds(ids=[5])


class Ordered:
    """A ConstraintQueue whose first job holds the thread until `free` is set; the others note who they are."""

    def __init__(self, most=40, weights=None):
        self.metrics = Metrics().for_model("m", 1, "t")
        self.building = ConstraintQueue(
            WorkerPool(1, "test-builder", self.metrics, FailureBudget(3)), self.metrics, most, weights
        )
        self.free, self.order, self.tasks = threading.Event(), [], []
        self._begun = threading.Event()

    async def __aenter__(self):
        def hold(_):
            self._begun.set()
            assert self.free.wait(60)

        self.tasks.append(asyncio.create_task(self.building.do(hold)))
        assert await asyncio.to_thread(self._begun.wait, 60)
        return self

    async def __aexit__(self, *_):
        self.free.set()
        await asyncio.gather(*self.tasks, return_exceptions=True)
        assert 0 == self.metrics.constraining
        self.building.stop()

    async def ask(self, name, standing=ANYBODY, seconds=0.0):
        """Let one wait."""

        def job(_):
            time.sleep(seconds)
            self.order.append(name)

        self.tasks.append(asyncio.create_task(self.building.do(job, standing=standing)))
        await asyncio.sleep(0)
        return self.tasks[-1]


def test_tenants_take_turns(monkeypatch):
    """One that came with ten before another with two: the other's first is next, and its second is not the last."""
    # Each takes the same time, also if the machine stands still.
    monkeypatch.setattr(turns, "time", SimpleNamespace(monotonic=lambda: 0.0))

    async def run():
        async with Ordered() as room:
            for count in range(10):
                await room.ask(f"many {count}", Standing(tenant="many"))
            for count in range(2):
                await room.ask(f"few {count}", Standing(tenant="few"))
            assert 13 == room.metrics.constraining
        assert room.order.index("few 0") <= 1
        assert room.order.index("few 1") <= 5

    asyncio.run(run())


def test_high_goes_before_low():
    """Whoever came first."""

    async def run():
        async with Ordered() as room:
            for priority in (Priority.LOW, Priority.NORMAL, Priority.HIGH):
                await room.ask(priority.name, Standing(priority))
        assert ["HIGH", "NORMAL", "LOW"] == room.order

    asyncio.run(run())


def test_one_tenant_does_not_fill_the_room():
    """It has four fifths of the places. The next one of it is refused, and another's is built."""

    async def run():
        async with Ordered(most=10) as room:
            many = [await room.ask(count, Standing(tenant="many")) for count in range(9)]
            assert [False] * 8 + [True] == [task.done() for task in many]
            assert "TENANT_QUEUE_FULL" == many[-1].exception().reason
            await room.ask("another", Standing(tenant="other"))
        assert "another" in room.order

    asyncio.run(run())


def test_who_leaves_frees_a_place():
    """Whether it waits or is being built. Nobody of the others is forgotten."""

    async def run():
        async with Ordered(most=3) as room:
            waits = await room.ask("waits")
            await room.ask("stays")
            waits.cancel()
            await asyncio.wait([waits])
            assert 2 == room.metrics.constraining
            room.tasks[0].cancel()
            await asyncio.wait([room.tasks[0]])
            assert 1 == room.metrics.constraining
        assert ["stays"] == room.order

    asyncio.run(run())


def test_many_who_leave_at_once_harm_nobody():
    """Those whose tasks are cancelled and have not run since are passed over, and the next one has its turn."""

    async def run():
        async with Ordered() as room:
            leaving = [*room.tasks, *[await room.ask(f"leaves {count}") for count in range(5)]]
            stays = await room.ask("stays")
            for task in leaving:
                task.cancel()
            room.free.set()
            ended = await asyncio.gather(*leaving, stays, return_exceptions=True)
            assert [asyncio.CancelledError] * 6 + [type(None)] == [type(each) for each in ended]
        assert ["stays"] == room.order

    asyncio.run(run())


def made(num_bytes):
    """What counts as a constraint."""
    constraint = Constraint.__new__(Constraint)
    constraint.num_bytes = num_bytes
    return constraint


def test_what_constraints_hold_is_bounded_and_comes_back(monkeypatch):
    """All together, and for a tenant half of it. What nobody has any more counts no more."""
    monkeypatch.setattr(held_bytes, "MAX_BYTES", 100)
    monkeypatch.setattr(held_bytes, "MAX_BYTES_OF_TENANT", 50)
    memory = held_bytes.ConstraintMemory()
    held = [made(40), made(40)]
    memory.hold(held[0], "a")
    with pytest.raises(Overloaded) as refused:
        memory.hold(made(11), "a")
    assert "BYTE_BUDGET" == refused.value.reason
    memory.hold(held[1], "b")
    with pytest.raises(Overloaded):
        memory.hold(made(21), "c")
    held.clear()
    gc.collect()
    memory.hold(made(50), "a")


def test_bytes_are_taken_by_one_alone_whatever_they_are():
    """Beyond the bound of all, and of a tenant: else it would never be answered. Beside others it is refused."""
    memory = HeldBytes("this takes", 100, 50)
    for tenant, size in (("", 101), ("a", 60), ("a", 101)):
        memory.take(size, tenant)
        with pytest.raises(Overloaded, match="this takes 30 bytes, and others hold the room for that"):
            memory.take(30, tenant)
        memory.give_back(size, tenant)
    assert 0 == memory.held


def no_threads(monkeypatch):
    """Let the machine have no thread for anybody."""

    def start(_):
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(threading.Thread, "start", start)


def test_no_thread_is_a_busy_machine(monkeypatch):
    """Not a bug: MACHINE_BUSY. When there are threads again, the next job is done, and the first one is not."""

    async def run():
        metrics, done = Metrics().for_model("m", 1, "t"), []
        workers = WorkerPool(1, "test", metrics, FailureBudget(3))
        with monkeypatch.context() as patched:
            no_threads(patched)
            with pytest.raises(Overloaded) as refused:
                await workers.do(lambda: done.append("first"))
        assert "MACHINE_BUSY" == refused.value.reason
        await workers.do(lambda: done.append("second"))
        assert ["second"] == done
        workers.stop()

    asyncio.run(run())


def test_no_thread_with_a_large_stack_is_a_busy_machine(monkeypatch):
    """Those that have started end, although they wait for the others."""
    start, started = threading.Thread.start, []

    def once(thread):
        if started:
            raise RuntimeError("can't start new thread")
        started.append(thread)
        start(thread)

    with monkeypatch.context() as patched:
        patched.setattr(threading.Thread, "start", once)
        with pytest.raises(Overloaded) as refused:
            deep_pool(2, "test")
    assert "MACHINE_BUSY" == refused.value.reason
    started[0].join(60)
    assert not started[0].is_alive()


def decoding(**constraint):
    """A request's."""
    return common_pb2.Decoding(max_new_tokens=4, constraint=common_pb2.Constraint(**constraint))


def hostile(number):
    """A short schema that has a parser count to a hundred million."""
    return decoding(json_schema=json.dumps({"type": "integer", "multipleOf": 99_999_989 - number}))


def resident():
    """Megabytes of this process."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE") / 1e6


@pytest.mark.slow
@pytest.mark.timeout(600)  # of processor time it takes ten seconds
def test_hostile_schemas_hold_up_nobody_else(tiny_repository):
    """Six of one tenant are refused one by one. Another's is built after two at most, and memory does not grow."""

    async def run():
        async with Loaded(tiny_repository / "tiny-generate" / "1") as model:
            refused = []

            async def harm(number):
                with pytest.raises(InvalidRequest) as error:
                    await ask(model, "hostile", token_ids=IDS, decoding=hostile(number))
                refused.append(error.value.reason)

            await ask(model, "good", token_ids=IDS, decoding=decoding(regex="a"))
            before = resident()
            tasks = [asyncio.create_task(harm(number)) for number in range(6)]
            await asyncio.sleep(0.1)
            for text in ("ab", "ba", "aa"):
                already = len(refused)
                answer = await ask(model, "good", token_ids=IDS, decoding=decoding(regex=text))
                assert text == answer.completion.text
                assert len(refused) <= already + 2
            await asyncio.gather(*tasks)
            assert ["CONSTRAINT_REFUSED"] * 6 == refused
            answer = await ask(model, "good", token_ids=IDS, decoding=decoding(regex="bb"))
            assert "bb" == answer.completion.text
            assert resident() - before < 50

    asyncio.run(run())


def test_who_leaves_during_a_trial_frees_the_builder(tiny_repository, monkeypatch):
    """Nothing but the caller's leave ends it here. The next constraint is built."""
    monkeypatch.setattr("weft_server.structured_output.grammar_sandbox._WAIT_S", 600)

    async def run():
        async with Loaded(tiny_repository / "tiny-generate" / "1") as model:
            await ask(model, token_ids=IDS, decoding=decoding(regex="a"))
            process = model.grammars.trials.process
            process.send_signal(19)  # SIGSTOP: it never answers
            task = asyncio.create_task(ask(model, token_ids=IDS, decoding=hostile(0)))
            await asyncio.sleep(0.2)
            assert not task.done()
            task.cancel()
            await asyncio.wait([task])
            answer = await ask(model, token_ids=IDS, decoding=decoding(regex="ab"))
            assert "ab" == answer.completion.text
            assert process.returncode is not None

    asyncio.run(run())


def test_a_step_that_hangs_ends_its_request_alone(tiny_repository, monkeypatch):
    """The lane goes on, and so do later constraints, by other threads."""
    free, look = threading.Event(), constraint_module.Following._look

    def hang(following):
        if threading.current_thread().name.startswith("tiny-generate/1-worker-constraint-follow") and not free.is_set():
            assert free.wait(60)
        return look(following)

    async def run():
        async with Loaded(tiny_repository / "tiny-generate" / "1") as model:
            with monkeypatch.context() as patched:
                patched.setattr(constraint_module, "WAIT_S", 0.5)
                patched.setattr(constraint_module.Following, "_look", hang)
                with pytest.raises(RequestError) as refused:
                    await ask(model, token_ids=IDS, decoding=decoding(regex="[ab]{3}"))
                assert "CONSTRAINT_REFUSED" == refused.value.reason
                assert (await ask(model, token_ids=IDS)).completion.token_ids
            answer = await ask(model, token_ids=IDS, decoding=decoding(regex="[ab]{3}"))
            assert 3 == len(answer.completion.text)
            # The other thread of those that were given up ends with the model, and this one when it hangs no more.
            free.set()

    asyncio.run(run())


def test_a_deadline_that_passed_while_waiting_says_so():
    """Nothing is built for it."""

    async def run():
        async with Ordered() as room:
            task = asyncio.create_task(room.building.do(lambda _: room.order.append("late"), time.monotonic() + 0.01))
            await asyncio.sleep(0.05)
            room.free.set()
            with pytest.raises(DeadlineExpired):
                await task
        assert [] == room.order

    asyncio.run(run())
