"""A lane that throws, hangs or runs out of memory: its requests are told, another takes its place, within a budget."""

import asyncio
import gc
import math
import threading
import time
import weakref

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

from loaded import Loaded, ask
from running import Running
from toy import Toy
from waiting import until
from weft_server.engine import engine as engine_module
from weft_server.engine import failure
from weft_server.engine.failure import FailureBudget, stack_of
from weft_server.engine.lane import Intake
from weft_server.errors import Draining, LaneFailed, ModelFailed, Overloaded
from weft_server.models.worker_pool import WorkerPool
from weft_server.models.worker_queue import WorkerQueue
from weft_server.runtime.session import Session, is_out_of_memory
from weft_server.sequence import ANYBODY, Decoding
from weft_server.telemetry.metrics import Metrics

LONG = Decoding(24, 24)


@pytest.fixture(scope="module")
def toy(tmp_path_factory):
    """The toy with a recurrent state and a memory, and its two sessions."""
    toy = Toy(tmp_path_factory.mktemp("toy"), attends=True)
    toy.encoder, toy.decoder = Session(toy.encoder_path, 1), Session(toy.path, 1)
    return toy


def counted(metrics):
    """Failures by their reason."""
    return {reason: counter.value for (name, reason), counter in metrics.counters.items() if name == "failures_total"}


async def outcome_of(sequence):
    """The error that a sequence ends with."""
    with pytest.raises((LaneFailed, Overloaded)) as raised:
        await asyncio.wait_for(sequence.reply.done(), 20)
    return raised.value


def test_nothing_of_a_lane_that_failed_is_used_again(toy):
    """A run that has written rubbish everywhere and then failed shows in no later answer: the lane is another one."""

    async def run():
        async with Running(toy, num_slots=3, num_lanes=1) as running:
            runner, decode = running.runners[0], running.runners[0].decode

            def rubbish(num_rows):
                decode(num_rows)
                for state in runner.states.states:
                    state.buffers[:] = np.nan
                running.slots[0].past_lengths[:] = 7
                runner.states.flip = 5
                raise RuntimeError("half done")

            runner.decode = rubbish
            failed = [running.submit([5, 6], LONG) for _ in range(3)]
            errors = [await outcome_of(sequence) for sequence in failed]
            assert {"STEP_FAILED"} == {error.reason for error in errors}
            assert 1 == len({error.error_id for error in errors})
            for source in ([7], [5, 6], [9, 4, 3]):
                after = running.submit(source, Decoding(9))
                await after.reply.done()
                assert toy.greedy(source, 9) == after.reply.token_ids
            assert (2, 9) == (len(running.runners), running.failure_budget.num_left)
            assert running.runners[1] is running.engine.lanes[0].runner
            assert {"STEP_FAILED": 1} == counted(running.metrics)

    asyncio.run(run())


def test_who_waits_while_a_lane_fails_is_answered(toy):
    """Only those that the lane held end. Others have not begun, and the next lane takes them."""

    async def run():
        async with Running(toy, num_slots=1, num_lanes=1) as running:

            def broken(num_rows):
                raise RuntimeError("broken")

            running.runners[0].decode = broken
            first, second = running.submit([5], Decoding(4)), running.submit([7], Decoding(4))
            assert "STEP_FAILED" == (await outcome_of(first)).reason
            await second.reply.done()
            assert toy.greedy([7], 4) == second.reply.token_ids

    asyncio.run(run())


def test_a_lane_whose_books_are_broken_loses_nobody(toy):
    """It cannot say what it held. Its sequences end all the same, once, and its slots are free."""

    async def run():
        async with Running(toy, num_slots=2, num_lanes=1) as running:
            lane = running.engine.lanes[0]

            def broken(*_):
                raise RuntimeError("broken")

            running.runners[0].decode = lane.fail = broken
            failed = [running.submit([5], Decoding(4)) for _ in range(2)]
            assert ["STEP_FAILED"] * 2 == [(await outcome_of(sequence)).reason for sequence in failed]
            after = running.submit([7], Decoding(4))
            await after.reply.done()
            running.slots.pop(0)  # nobody has cleared them, and nobody will

    asyncio.run(run())


@pytest.mark.parametrize("broken", [0, 1, 2])
def test_an_answer_is_handed_over_though_the_books_of_another_are_broken(toy, broken):
    """Three answers end in one step, and counting one of them fails: each arrives, and the next lane goes on."""

    async def run():
        async with Running(toy, num_slots=3, num_lanes=1) as running:
            settle, ended = running.scheduler.settle, []

            def count(sequence):
                settle(sequence)
                ended.append(sequence)
                if len(ended) == broken + 1:
                    raise RuntimeError("broken")

            running.scheduler.settle = count
            asked = [running.submit([5], Decoding(4)) for _ in range(3)]
            for sequence in asked:
                await asyncio.wait_for(sequence.reply.done(), 20)
                assert toy.greedy([5], 4) == sequence.reply.token_ids
            after = running.submit([7], Decoding(4))
            await after.reply.done()
            assert toy.greedy([7], 4) == after.reply.token_ids
            assert sorted(map(id, [*asked, after])) == sorted(map(id, ended))

    asyncio.run(run())


def test_memory_that_runs_out_sheds_the_step_and_costs_no_restart(toy):
    """Its requests may come again: RESOURCE_EXHAUSTED with a hint, as often as it happens."""

    async def run():
        async with Running(toy, num_slots=2, num_lanes=1, max_restarts=0) as running:
            for number in range(3):

                def starved(num_rows):
                    raise MemoryError

                running.runners[-1].decode = starved
                failed = [running.submit([5], Decoding(4)) for _ in range(2)]
                for sequence in failed:
                    error = await outcome_of(sequence)
                    assert (Overloaded, "OUT_OF_MEMORY") == (type(error), error.reason)
                    assert error.retry_after_s
                after = running.submit([7], Decoding(4))
                await after.reply.done()
                assert {"OUT_OF_MEMORY": number + 1} == counted(running.metrics)
            assert (0, False) == (running.failure_budget.num_left, running.failure_budget.is_spent)

    asyncio.run(run())


def test_a_lane_cannot_be_made_while_memory_is_short(toy, monkeypatch):
    """It is tried again, and then answers. Each try takes from the budget: else a lane could be missing for ever."""
    monkeypatch.setattr(engine_module, "FAILED_STEP_PAUSE_S", 0.001)

    async def run():
        async with Running(toy, num_slots=2, num_lanes=1) as running:
            make, tries = running.make_lane, []

            def starved(index):
                tries.append(index)
                if len(tries) < 4:
                    raise MemoryError
                return make(index)

            def broken(num_rows):
                raise RuntimeError("broken")

            running.make_lane, running.runners[0].decode = starved, broken
            assert "STEP_FAILED" == (await outcome_of(running.submit([5], Decoding(4)))).reason
            after = running.submit([7], Decoding(4))
            await after.reply.done()
            assert ([0] * 4, 6) == (tries, running.failure_budget.num_left)

    asyncio.run(run())


def test_a_lane_that_failed_gives_its_memory_back_before_the_next_is_made(toy):
    """Otherwise there would have to be room for both, just when memory has run out."""

    async def run():
        async with Running(toy, num_slots=2, num_lanes=1) as running:
            make, left = running.make_lane, []

            def noted(index):
                left.append(old())
                return make(index)

            def starved(num_rows):
                raise MemoryError

            old = weakref.ref(running.engine.lanes[0])
            running.make_lane, running.runners.pop().decode = noted, starved
            running.slots.pop()
            failed = running.submit([5], Decoding(4))
            assert "OUT_OF_MEMORY" == (await outcome_of(failed)).reason
            await until(lambda: left)
            assert [None] == left

    asyncio.run(run())


def test_other_lanes_go_on_while_one_is_made(toy):
    """A lane that is gone holds nothing, and nobody leaves waiting sequences to it for that."""

    async def run():
        async with Running(toy, num_slots=2, num_lanes=2) as running:
            make, go_on, making = running.make_lane, threading.Event(), threading.Event()

            def slow(index):
                making.set()
                assert go_on.wait(20)
                return make(index)

            def broken(num_rows):
                raise RuntimeError("broken")

            def slowly(num_rows, decode=running.runners[1].decode):
                time.sleep(0.05)
                return decode(num_rows)

            running.make_lane = slow
            running.runners[0].decode, running.runners[1].decode = broken, slowly
            while not making.is_set():
                asked = [running.submit([5], Decoding(4)) for _ in range(2)]
                await asyncio.gather(*(sequence.reply.done() for sequence in asked), return_exceptions=True)
            long = running.submit([5], LONG, wants_tokens=True)
            await long.reply.changed()
            short = running.submit([7], Decoding(4))
            await asyncio.wait_for(short.reply.done(), 20)
            await long.reply.done()
            assert short.times.admitted < long.times.finished
            go_on.set()
            await until(lambda: len(running.engine.lanes) == 2)
            assert not running.scheduler.closed

    asyncio.run(run())


def test_what_onnx_runtime_says_of_memory_is_understood(capfd):
    """A tensor that no machine has room for fails in its arena: that is memory, and a wrong shape is none."""
    node = helper.make_node("ConstantOfShape", ["shape"], ["big"])
    shape = helper.make_tensor_value_info("shape", TensorProto.INT64, [1])
    graph = helper.make_graph([node], "g", [shape], [helper.make_tensor_value_info("big", TensorProto.FLOAT, None)])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    session = Session(model.SerializeToString(), 1)
    found = []
    for value in (np.array([1 << 44]), np.array([[1]])):
        with pytest.raises(Exception) as raised:  # noqa: PT011 - ONNX Runtime has no class for it
            session.run({"shape": value})
        found.append(is_out_of_memory(raised.value))

    assert [True, False] == found
    assert ("", "") == capfd.readouterr()  # it is an exception, and no line past our log
    assert not is_out_of_memory(RuntimeError("out of memory, says somebody else"))
    assert onnx.__version__


def test_a_lane_that_hangs_is_replaced_and_what_it_does_later_is_ignored(toy):
    """Its requests are told, those behind them are answered, and when it wakes its tokens go nowhere."""

    async def run():
        async with Running(toy, num_slots=2, num_lanes=1) as running:
            engine, go_on = running.engine, threading.Event()
            decode, steps = running.runners[0].decode, []

            def hung(num_rows):
                steps.append(num_rows)
                assert len(steps) < 3 or go_on.wait(20)
                return decode(num_rows)

            running.runners[0].decode = hung
            stuck = [running.submit([5], LONG, wants_tokens=True) for _ in range(2)]
            waits = running.submit([7], Decoding(4))
            await until(lambda: len(steps) == 3)
            engine.supervise(60)
            assert 1 == len(running.runners)  # not yet
            engine.supervise(0)
            errors = [await outcome_of(sequence) for sequence in stuck]
            assert ["LANE_STUCK"] * 2 == [error.reason for error in errors]
            await waits.reply.done()
            assert toy.greedy([7], 4) == waits.reply.token_ids
            engine.supervise(60)  # the lane that is gone is no longer looked at
            assert time.monotonic() - engine.last_beat < 10
            told = [list(sequence.reply.token_ids) for sequence in stuck]
            again = running.submit([9], Decoding(9))
            go_on.set()
            await until(lambda: engine.supervise(60) or not engine.num_stuck)
            await again.reply.done()
            assert toy.greedy([9], 9) == again.reply.token_ids
            assert told == [sequence.reply.token_ids for sequence in stuck]
            assert {"LANE_STUCK": 1} == counted(running.metrics)
            assert 0 == running.slots[0].num_used  # it let go of what it held

    asyncio.run(run())


def test_a_lane_that_was_given_up_frees_nothing_twice(toy):
    """It hangs in the step that ends its rows. When it wakes, their slots have been counted as free."""

    async def run():
        async with Running(toy, num_slots=2, num_lanes=1) as running:
            go_on, entered, decode = threading.Event(), threading.Event(), running.runners[0].decode

            def hung(num_rows):
                entered.set()
                assert go_on.wait(60)
                return decode(num_rows)

            running.runners[0].decode = hung
            stuck = [running.submit([5], Decoding(1)) for _ in range(2)]
            await asyncio.to_thread(entered.wait, 60)
            running.engine.supervise(0)
            assert ["LANE_STUCK"] * 2 == [(await outcome_of(sequence)).reason for sequence in stuck]
            await until(lambda: running.engine.lanes)
            go_on.set()
            await until(lambda: 0 == running.slots[0].num_used)
            after = running.submit([7], Decoding(4))
            await after.reply.done()
            assert {"LANE_STUCK": 1} == counted(running.metrics)

    asyncio.run(run())


def test_a_lane_that_was_given_up_takes_nobody(toy):
    """Who waits when it wakes is left to the lane in its place, which has no room yet."""

    async def run():
        async with Running(toy, num_slots=1, num_lanes=1) as running:
            go_on, entered, taken = threading.Event(), threading.Event(), []

            def hung(take):
                entered.set()
                assert go_on.wait(60)
                taken.append(take(Intake(1, 64, room=1)))
                return []

            running.engine.lanes[0].step = hung
            first = running.submit([5], Decoding(4))
            await asyncio.to_thread(entered.wait, 60)
            running.engine.supervise(0)
            await first.reply.done()
            entered.clear()
            held, decode = threading.Event(), running.runners[1].decode

            def slowly(num_rows):
                entered.set()
                assert held.wait(60)
                return decode(num_rows)

            running.runners[1].decode = slowly
            asked = [running.submit([5], Decoding(4)) for _ in range(2)]
            await asyncio.to_thread(entered.wait, 60)
            go_on.set()
            await until(lambda: taken)
            assert [[]] == taken
            held.set()
            for sequence in asked:
                await sequence.reply.done()

    asyncio.run(run())


def test_an_engine_stops_but_not_while_a_lane_hangs(toy):
    """`stop` says so, also of one that was given up: its thread would keep the process."""

    async def run():
        go_on = threading.Event()
        async with Running(toy, num_slots=2, num_lanes=1) as running:
            entered = threading.Event()

            def hung(num_rows):
                entered.set()
                assert go_on.wait(20)
                raise RuntimeError("woken")

            running.runners[0].decode = hung
            stuck = running.submit([5], LONG)
            await asyncio.to_thread(entered.wait, 20)
            running.engine.supervise(0)
            assert "LANE_STUCK" == (await outcome_of(stuck)).reason
            assert not await asyncio.to_thread(running.engine.stop, 0.05)
            go_on.set()

    asyncio.run(run())


def test_a_lane_that_hangs_and_then_fails_is_one_failure(toy):
    """It was counted when it was given up. So was the making of a lane that hangs."""

    async def run():
        async with Running(toy, num_slots=2, num_lanes=1) as running:
            engine, make, entered, go_on = running.engine, running.make_lane, [], threading.Event()

            def hung(*_):
                entered.append(1)
                assert go_on.wait(20)
                raise RuntimeError("woken")

            def broken(num_rows):
                raise RuntimeError("broken")

            running.runners[0].decode = hung
            stuck = running.submit([5], LONG)
            await until(lambda: entered)
            engine.supervise(0)
            assert "LANE_STUCK" == (await outcome_of(stuck)).reason
            await until(lambda: len(engine.lanes) == 1)
            running.make_lane, running.runners[1].decode = hung, broken
            assert "STEP_FAILED" == (await outcome_of(running.submit([5], LONG))).reason
            await until(lambda: len(entered) == 2)
            running.make_lane = make
            engine.supervise(0)
            go_on.set()
            await until(lambda: engine.supervise(60) or not engine.num_stuck)
            assert {"LANE_STUCK": 2, "STEP_FAILED": 1} == counted(running.metrics)
            assert 7 == running.failure_budget.num_left

    asyncio.run(run())


def test_with_the_budget_spent_no_lane_is_made(toy):
    """One failure more than the budget is the last: the engine waits for the end of the process."""

    async def run():
        async with Running(toy, num_slots=2, num_lanes=1, max_restarts=1) as running:
            for _ in range(2):
                assert not running.failure_budget.is_spent

                def broken(num_rows):
                    raise RuntimeError("broken")

                running.runners[-1].decode = broken
                assert "STEP_FAILED" == (await outcome_of(running.submit([5], Decoding(4)))).reason
                await until(lambda: running.failure_budget.is_spent or len(running.engine.lanes) == 1)
            assert (2, []) == (len(running.runners), running.engine.lanes)

    asyncio.run(run())


def test_failures_are_forgotten_after_their_time(monkeypatch):
    """Two in ten minutes spend a budget of one; two with more between them do not."""
    now = [1000.0]
    monkeypatch.setattr(failure.time, "monotonic", lambda: now[0])
    budget = FailureBudget(1)
    assert budget.spend()
    now[0] += 601
    assert (1, True, 0) == (budget.num_left, budget.spend(), budget.num_left)
    assert (False, True) == (budget.spend(), budget.is_spent)
    now[0] += 601

    assert (True, 0) == (budget.is_spent, budget.num_left)


def test_a_worker_that_hangs_is_replaced_and_those_behind_it_are_served():
    """Its own request is told. A job that waits moves to the new thread, and runs once."""

    async def run():
        metrics, budget = Metrics().for_model("m", 1, "t"), FailureBudget(5)
        workers, go_on, ran = WorkerPool(1, "m/1-worker", metrics, budget), threading.Event(), []
        hung = asyncio.create_task(workers.do(lambda: go_on.wait(20)))
        await until(lambda: workers.num_running)
        behind = [asyncio.create_task(workers.do(lambda n=n: ran.append(n) or n)) for n in range(3)]
        await asyncio.sleep(0)
        workers.supervise(60)
        assert not hung.done()
        workers.supervise(-1)
        with pytest.raises(LaneFailed) as raised:
            await hung
        assert ("WORKER_STUCK", [0, 1, 2]) == (raised.value.reason, await asyncio.gather(*behind))
        go_on.set()
        await until(lambda: not workers.num_running)
        assert [0, 1, 2] == ran
        assert (4, {"WORKER_STUCK": 1}) == (budget.num_left, counted(metrics))
        assert (0, 0) == (workers.num_wanted, workers.num_running)
        workers.stop()

    asyncio.run(run())


def test_where_a_thread_is_can_be_said_while_it_is_somewhere():
    """The innermost call comes last. One that has ended, or is none, is nowhere."""
    go_on = threading.Event()
    thread = threading.Thread(target=go_on.wait)
    thread.start()
    assert "in wait" in stack_of(thread).strip().rpartition("File")[2]
    go_on.set()
    thread.join()
    assert ["", ""] == [stack_of(thread), stack_of(None)]


def test_a_model_that_has_failed_too_often_has_no_more_requests(tiny_repository):
    """One that has not goes on."""

    async def run():
        async with Loaded(tiny_repository / "tiny-text" / "1") as model:
            model.supervise(60)
            assert (await ask(model, text="w3")).labels
            model.failure_budget.exhaust()
            model.supervise(60)
            with pytest.raises(ModelFailed):
                await ask(model, text="w3")

    asyncio.run(run())


def test_a_thread_for_tokens_that_hangs_is_replaced():
    """Its place in the queue is free again."""

    async def run():
        metrics = Metrics().for_model("m", 1, "t")
        workers, go_on = WorkerPool(1, "m/1-tokenize", metrics, FailureBudget(5)), threading.Event()
        queue = WorkerQueue(workers, 1)
        hung = asyncio.create_task(queue.do(lambda _: go_on.wait(20), math.inf, ANYBODY))
        await until(lambda: workers.num_running)
        queue.supervise(60)
        assert not hung.done()
        queue.supervise(-1)
        with pytest.raises(LaneFailed, match="took too long"):
            await hung
        assert 3 == await queue.do(lambda _: 3, math.inf, ANYBODY)
        go_on.set()
        queue.stop()
        await until(lambda: not [each for each in threading.enumerate() if each.name.startswith("m/1-tokenize")])

    asyncio.run(run())


def test_a_worker_hangs_though_nobody_waits_for_it():
    """Its caller has gone. The thread is replaced all the same, or no later request would be read."""

    async def run():
        metrics = Metrics().for_model("m", 1, "t")
        workers, go_on = WorkerPool(1, "m/1-worker", metrics, FailureBudget(5)), threading.Event()
        hung = asyncio.create_task(workers.do(lambda: go_on.wait(20)))
        await until(lambda: workers.num_running)
        hung.cancel()
        await asyncio.wait([hung])
        workers.supervise(-1)
        assert 3 == await asyncio.wait_for(workers.do(lambda: 3), 20)
        go_on.set()
        workers.stop()

    asyncio.run(run())


def test_a_job_that_nobody_waits_for_keeps_nothing():
    """Behind a long job it does not begin, and what it has read or computed is let go at once."""

    async def run():
        metrics = Metrics().for_model("m", 1, "t")
        workers, go_on = WorkerPool(1, "m/1-worker", metrics, FailureBudget(5)), threading.Event()
        long = asyncio.create_task(workers.do(lambda: go_on.wait(20)))
        await until(lambda: workers.num_running)
        large = np.zeros(1000)
        kept = weakref.ref(large)
        behind = asyncio.create_task(workers.work(lambda _, large=large: large.sum()))
        del large
        await until(lambda: 2 == workers.num_wanted)
        behind.cancel()
        await asyncio.wait([behind])
        del behind
        gc.collect()
        assert kept() is None
        go_on.set()
        assert await long
        workers.stop()

    asyncio.run(run())


def test_workers_end_whoever_waits_for_them_and_whoever_comes_then():
    """Those whose job has begun, those behind them, those who were just moved: each hears it at once, by itself."""

    async def run():
        metrics = Metrics().for_model("m", 1, "t")
        workers, go_on, ran = WorkerPool(1, "m/1-worker", metrics, FailureBudget(5)), threading.Event(), []
        hung = asyncio.create_task(workers.do(lambda: go_on.wait(20)))
        await until(lambda: workers.num_running)
        behind = [asyncio.create_task(workers.do(lambda: ran.append(1))) for _ in range(2)]
        await asyncio.sleep(0)
        workers.supervise(-1)
        workers.cancel_all(Draining)
        late = asyncio.create_task(workers.do(lambda: ran.append(1)))
        outcomes = await asyncio.gather(hung, *behind, late, return_exceptions=True)
        assert [LaneFailed, *[Draining] * 3] == [type(each) for each in outcomes]
        assert 4 == len(set(map(id, outcomes)))
        assert ([], 0) == (ran, workers.num_wanted)
        go_on.set()
        workers.stop()

    asyncio.run(run())


def test_threads_that_hang_for_good_are_bounded(toy, monkeypatch):
    """Failures are forgiven after a time, and threads that hang still are not: each holds the memory of a lane."""
    monkeypatch.setattr(failure, "WINDOW_S", 0.0)

    async def run():
        async with Running(toy, num_slots=2, num_lanes=1, max_restarts=1) as running:
            go_on = threading.Event()
            for number in range(2):
                assert not running.failure_budget.is_spent
                entered = threading.Event()

                def hung(num_rows, entered=entered):
                    entered.set()
                    assert go_on.wait(60)
                    raise RuntimeError("woken")

                await until(lambda number=number: len(running.runners) == number + 1 and running.engine.lanes)
                running.runners[number].decode = hung
                stuck = running.submit([5], LONG)
                await asyncio.to_thread(entered.wait, 60)
                running.engine.supervise(0)
                assert "LANE_STUCK" == (await outcome_of(stuck)).reason
            assert running.failure_budget.is_spent
            go_on.set()
            await until(lambda: running.engine.supervise(60) or not running.engine.num_stuck)

    asyncio.run(run())


def test_a_lane_whose_thread_has_ended_is_replaced(toy, monkeypatch):
    """A bug of ours ends the thread. It counts as a failed step, and who waits is answered by another lane."""

    async def run():
        async with Running(toy, num_slots=2, num_lanes=1) as running:
            engine = running.engine
            died = threading.Event()
            monkeypatch.setattr(threading, "excepthook", lambda _: died.set())
            monkeypatch.setattr(engine_module.Engine, "_step", lambda *_: (_ for _ in ()).throw(SystemExit))
            waits = running.submit([7], Decoding(4))
            await until(died.is_set)
            monkeypatch.undo()
            await until(lambda: engine.supervise(60) or counted(running.metrics))
            await waits.reply.done()
            assert toy.greedy([7], 4) == waits.reply.token_ids
            assert {"STEP_FAILED": 1} == counted(running.metrics)

    asyncio.run(run())


def test_a_thread_that_cannot_be_started_now_is_tried_again(toy, monkeypatch):
    """A system that allows no more threads costs what was in the lane. Once it does, the lane is there again."""

    async def run():
        async with Running(toy, num_slots=2, num_lanes=1) as running:
            engine, go_on, entered = running.engine, threading.Event(), threading.Event()

            def hung(num_rows):
                entered.set()
                assert go_on.wait(60)
                raise RuntimeError("woken")

            def none_left(_):
                raise RuntimeError("can't start new thread")

            running.runners[0].decode = hung
            stuck = running.submit([5], LONG)
            await asyncio.to_thread(entered.wait, 60)
            with monkeypatch.context() as patched:
                patched.setattr(threading.Thread, "start", none_left)
                engine.supervise(0)
                engine.supervise(0)
            assert "LANE_STUCK" == (await outcome_of(stuck)).reason
            after = running.submit([7], Decoding(4))
            engine.supervise(60)
            await after.reply.done()
            assert toy.greedy([7], 4) == after.reply.token_ids
            assert 7 == running.failure_budget.num_left
            go_on.set()

    asyncio.run(run())


def test_workers_that_hang_for_good_are_bounded(monkeypatch):
    """As lanes: more of them than may fail are too many, however long ago they were given up."""
    monkeypatch.setattr(failure, "WINDOW_S", 0.0)

    async def run():
        metrics, budget = Metrics().for_model("m", 1, "t"), FailureBudget(1)
        workers, go_on = WorkerPool(1, "m/1-worker", metrics, budget), threading.Event()
        for _ in range(2):
            assert not budget.is_spent
            hung = asyncio.create_task(workers.do(lambda: go_on.wait(60)))
            await until(lambda: workers.num_running)
            workers.supervise(-1)
            await asyncio.wait([hung])
            assert hung.exception()
        assert budget.is_spent
        go_on.set()
        await until(lambda: not workers.num_stuck)
        workers.stop()

    asyncio.run(run())
