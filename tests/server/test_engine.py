"""Laws of the engine, on a toy RNN: any arrivals give the same answers, everything ends once, slots come back."""

import asyncio
import random
import threading
import time

import numpy as np
import pytest

from running import Running
from toy import Toy
from waiting import until
from weft_server.engine.batch_window import BatchWindow
from weft_server.engine.decode_lane import DecodeLane
from weft_server.engine.decode_runner import DecodeRunner
from weft_server.engine.slots import Slots
from weft_server.errors import DeadlineExpired, Draining, LaneFailed, Overloaded
from weft_server.runtime.session import Session
from weft_server.sampling.sampler import Sampling
from weft_server.sequence import Cancelled, Decoding, FinishReason, Sequence
from weft_server.source import Ids
from weft_server.telemetry.metrics import Metrics


@pytest.fixture(scope="module", params=[False, True], ids=["recurrent", "recurrent and memory"])
def toy(tmp_path_factory, request):
    """The toy and its two sessions."""
    toy = Toy(tmp_path_factory.mktemp("toy"), attends=request.param)
    toy.encoder, toy.decoder = Session(toy.encoder_path, 1), Session(toy.path, 1)
    return toy


def test_answers_are_the_definitions_whatever_shares_the_batch(toy):
    """200 requests in random order, of random lengths, some streaming: each gets what the plain recurrence gives.

    So it does behind a prefix of its own.
    """

    async def run():
        rng = random.Random(3)
        async with Running(toy) as running:
            asked = []
            for _ in range(200):
                source, max_new = [rng.randrange(3, 50) for _ in range(rng.randrange(1, 16))], rng.randrange(1, 24)
                prefix = tuple(rng.randrange(50) for _ in range(rng.choice([0, 0, 1, 2, 3])))
                streams = rng.random() < 0.3
                sequence = running.submit(source, Decoding(max_new), prefix_ids=prefix, wants_tokens=streams)
                asked.append((source, max_new, prefix, sequence))
                if rng.random() < 0.2:
                    await asyncio.sleep(0.001)
            for source, max_new, prefix, sequence in asked:
                reason = await sequence.reply.done()
                assert toy.greedy(source, max_new, prefix) == sequence.reply.token_ids
                ended = sequence.reply.token_ids[-1] == 2
                assert reason is (FinishReason.STOP if ended else FinishReason.LENGTH)

    asyncio.run(run())


def test_requests_that_come_together_share_a_step(toy, monkeypatch):
    """An idle lane leaves the event loop some turns: who comes within them is taken in one step, in order."""
    monkeypatch.setattr("weft_server.engine.engine.HEARTBEAT_S", 60)
    monkeypatch.setattr("weft_server.engine.batch_window.GATHER_S", 60)

    async def run():
        async with Running(toy, num_slots=8, num_lanes=1) as running:
            encode, together = running.runners[0].encode, []

            def noted(sources, slots):
                together.append([source.array.tolist() for source in sources])
                encode(sources, slots)

            running.runners[0].encode = noted
            await until(lambda: running.engine.num_idle)
            asked = []
            for token in (5, 6, 7, 8):
                asked.append(running.submit([token], Decoding(4)))
                await asyncio.sleep(0)
            for sequence in asked:
                await sequence.reply.done()
            assert [[[5], [6], [7], [8]]] == together

    asyncio.run(run())


def test_as_many_lanes_wake_as_requests_wait(toy, monkeypatch):
    """Three requests that come together wake three idle lanes: each runs one beside the others, without a heartbeat."""
    monkeypatch.setattr("weft_server.engine.engine.HEARTBEAT_S", 60)

    async def run():
        async with Running(toy, num_lanes=3) as running:
            together = threading.Barrier(3)
            for runner in running.runners:

                def held(inputs, slots, encode=runner.encode):
                    together.wait(30)
                    encode(inputs, slots)

                runner.encode = held
            await until(lambda: 3 == running.engine.num_idle)
            asked = [running.submit([token], Decoding(4)) for token in (5, 6, 7)]
            for sequence in asked:
                await sequence.reply.done()
            assert {0, 1, 2} == {sequence.lane for sequence in asked}

    asyncio.run(run())


def test_who_comes_while_all_lanes_are_busy_wakes_nobody(toy, monkeypatch):
    """A busy lane looks for itself after its step: the event loop counts no turns, and no heartbeat is waited for."""
    monkeypatch.setattr("weft_server.engine.engine.HEARTBEAT_S", 60)
    noted = []
    note = BatchWindow.note
    monkeypatch.setattr(BatchWindow, "note", lambda *given: (noted.append(given[1]), note(*given)))

    async def run():
        async with Running(toy, num_lanes=1) as running:
            (runner,) = running.runners
            begun, may_end = threading.Event(), threading.Event()

            def held(inputs, slots, encode=runner.encode):
                begun.set()
                assert may_end.wait(30)
                encode(inputs, slots)

            runner.encode = held
            await until(lambda: running.engine.num_idle)
            asked = [running.submit([5], Decoding(4))]
            await until(begun.is_set)
            asked += [running.submit([token], Decoding(4)) for token in (6, 7)]
            may_end.set()
            for sequence in asked:
                await asyncio.wait_for(sequence.reply.done(), 30)
            assert [1] == noted
            await until(lambda: running.engine.num_idle)
            await running.submit([5], Decoding(4)).reply.done()
            assert [1, 1] == noted

    asyncio.run(run())


def test_scores_and_samples_are_bit_identical_alone_and_crowded(toy):
    """Tokens and log-probabilities, greedy and sampled, do not depend on arrivals, lanes or slots."""

    async def answers(num_slots, num_lanes, pause):
        rng = random.Random(4)
        found = []
        async with Running(toy, num_slots, num_lanes) as running:
            for index in range(60):
                sampling = Sampling(rng.choice([0.6, 1.0, 1.7]), rng.choice([0, 4]), 0.9, index) if index % 3 else None
                source = [rng.randrange(3, 50) for _ in range(5)]
                sequence = running.submit(source, Decoding(20, 3, (), sampling))
                found.append(sequence)
                if pause:
                    await sequence.reply.done()
            for sequence in found:
                await sequence.reply.done()
        return [(sequence.reply.token_ids, sequence.reply.log_probs) for sequence in found]

    async def run():
        assert await answers(1, 1, pause=True) == await answers(16, 2, pause=False)

    asyncio.run(run())


def test_a_cancelled_sequence_frees_its_slot_within_a_step(toy):
    """Waiting or running, it ends as cancelled, and those behind it run."""

    async def run():
        async with Running(toy, num_slots=1, num_lanes=1) as running:
            runner, decode, go_on, steps = running.runners[0], running.runners[0].decode, threading.Event(), []

            def held(num_rows):
                steps.append(num_rows)
                assert len(steps) < 4 or go_on.wait(30)
                return decode(num_rows)

            runner.decode = held
            forever = Decoding(24, 24)
            first, second, third = (running.submit([5], forever, wants_tokens=True) for _ in range(3))
            await first.reply.changed()
            running.engine.cancel(second)
            running.engine.cancel(first)
            go_on.set()
            for sequence in (first, second):
                with pytest.raises(Cancelled):
                    await sequence.reply.done()
            assert await third.reply.done() is FinishReason.LENGTH
            assert len(first.reply.token_ids) <= 4  # the step that ran when it was cancelled was the last
            running.engine.cancel(third)  # over already: nothing happens

    asyncio.run(run())


def test_a_deadline_ends_who_waits(toy):
    """Who is late before its turn gets no slot."""

    async def run():
        async with Running(toy) as running:
            sequence = running.submit([5], Decoding(24, 24), deadline=time.monotonic() - 1)
            with pytest.raises(DeadlineExpired):
                await sequence.reply.done()
            assert [] == sequence.reply.token_ids

    asyncio.run(run())


def test_a_deadline_ends_a_running_sequence(toy):
    """A row past its deadline is dropped at the end of the step, and its slot is another's. What it has it keeps."""

    async def run():
        async with Running(toy, num_slots=1, num_lanes=1) as running:
            decode, slots, steps = running.runners[0].decode, running.slots[0], []

            def late(num_rows):
                steps.append(num_rows)
                if len(steps) == 2:
                    slots.deadline[0] = time.monotonic() - 1
                return decode(num_rows)

            running.runners[0].decode = late
            sequence = running.submit([5], Decoding(24, 24), wants_tokens=True, deadline=time.monotonic() + 3600)
            with pytest.raises(DeadlineExpired):
                await sequence.reply.done()
            assert toy.greedy([5], 24)[:1] == sequence.reply.token_ids
            running.runners[0].decode = decode
            after = running.submit([7], Decoding(4))
            await after.reply.done()
            assert toy.greedy([7], 4) == after.reply.token_ids

    asyncio.run(run())


def test_a_full_waiting_room_refuses(toy):
    """One request over the bound is refused and counted nowhere."""

    async def run():
        async with Running(toy, num_slots=1, num_lanes=1, max_queued=2) as running:
            running.engine.reserve()
            running.engine.reserve()
            with pytest.raises(Overloaded):
                running.engine.reserve()
            running.engine.release()
            running.engine.release()

    asyncio.run(run())


def test_cancel_all_ends_everything_once(toy):
    """Whoever waits or runs ends with the given outcome."""

    async def run():
        async with Running(toy, num_slots=2, num_lanes=1) as running:
            sequences = [running.submit([5], Decoding(24, 24)) for _ in range(10)]
            running.engine.cancel_all(Draining)
            outcomes = []
            for sequence in sequences:
                try:
                    outcomes.append(await sequence.reply.done())
                except Draining:
                    outcomes.append("drained")
            assert "drained" in outcomes
            running.engine.reserve()
            with pytest.raises(Draining):  # its input was being read meanwhile
                running.engine.submit(Sequence("r", Ids(np.array([5])), Decoding(4)))
            running.engine.release()

    asyncio.run(run())


def test_a_full_lane_is_closed_until_it_has_room(toy):
    """Other lanes do not leave waiting sequences to it, and do so again when its sequence has ended."""

    async def run():
        async with Running(toy, num_slots=1, num_lanes=1) as running:
            decode, go_on, steps = running.runners[0].decode, threading.Event(), []

            def held(num_rows):
                steps.append(num_rows)
                assert len(steps) < 2 or go_on.wait(60)
                return decode(num_rows)

            running.runners[0].decode = held
            sequence = running.submit([5], Decoding(4, 4))
            await until(lambda: 2 == len(steps))
            assert {0} == running.scheduler.closed
            go_on.set()
            await sequence.reply.done()
            await until(lambda: not running.scheduler.closed)

    asyncio.run(run())


def test_cancel_all_tells_everybody_at_once(toy):
    """Who runs hears it though the lane is in a long step, each with an outcome of its own."""

    async def run():
        async with Running(toy, num_slots=2, num_lanes=1) as running:
            entered, go_on, decode = threading.Event(), threading.Event(), running.runners[0].decode

            def held(num_rows):
                entered.set()
                assert go_on.wait(60)
                return decode(num_rows)

            running.runners[0].decode = held
            sequences = [running.submit([5], Decoding(24, 24)) for _ in range(3)]
            await asyncio.to_thread(entered.wait, 60)
            running.engine.cancel_all(Draining)
            for sequence in sequences:
                with pytest.raises(Draining):
                    await asyncio.wait_for(sequence.reply.done(), 20)
            assert 3 == len({id(sequence.reply.outcome) for sequence in sequences})
            go_on.set()
            await until(lambda: 0 == running.engine.stats().held.slots_used)

    asyncio.run(run())


def test_a_failed_step_ends_its_sequences_and_the_lane_goes_on(toy, monkeypatch):
    """A broken run is a bug to those who were in it and nothing to those who come after."""

    async def run():
        async with Running(toy, num_slots=2, num_lanes=1) as running:
            runner, decode = running.runners[0], running.runners[0].decode

            def broken(num_rows):
                runner.decode = decode
                raise RuntimeError("broken graph")

            runner.decode = broken
            failed = [running.submit([5], Decoding(4)) for _ in range(2)]
            for sequence in failed:
                with pytest.raises(LaneFailed, match="a step of the model failed"):
                    await sequence.reply.done()
                assert "RuntimeError: broken graph" == sequence.reply.outcome.why
            # Each raised its own: a traceback grows with everybody who raises it.
            assert failed[0].reply.outcome is not failed[1].reply.outcome
            after = running.submit([7], Decoding(4))
            await after.reply.done()
            assert toy.greedy([7], 4) == after.reply.token_ids

    asyncio.run(run())


def test_a_failed_encoder_loses_nobody_it_was_to_read(toy):
    """Sequences admitted in the same step, of whatever length, all end with the error when one group fails."""

    async def run():
        running = Running(toy, num_slots=4, num_lanes=1)
        encode = running.runners[0].encode

        def broken(inputs, slots):
            running.runners[0].encode = encode
            raise RuntimeError("broken encoder")

        running.runners[0].encode = broken
        waiting = [running.submit([5] * length, Decoding(4)) for length in (1, 9, 2)]
        async with running:
            for sequence in waiting:
                with pytest.raises(LaneFailed):
                    await sequence.reply.done()
            after = running.submit([7], Decoding(4))
            await after.reply.done()
            assert toy.greedy([7], 4) == after.reply.token_ids

    asyncio.run(run())


def test_a_slot_that_cannot_begin_loses_nobody(toy):
    """On a device a recurrent state is cleared by a run: where that fails, all who were admitted with it are told."""

    async def run():
        running = Running(toy, num_slots=4, num_lanes=1)
        begin, runner = running.runners[0].begin, running.runners[0]

        def broken(slot):
            if slot == 1:
                runner.begin = begin
                raise RuntimeError("broken copy")

        runner.begin = broken
        waiting = [running.submit([5, 6], Decoding(4)) for _ in range(3)]
        async with running:
            for sequence in waiting:
                with pytest.raises(LaneFailed):
                    await asyncio.wait_for(sequence.reply.done(), 20)

    asyncio.run(run())


def test_rows_that_move_take_their_state_with_them(toy):
    """Rows end at every step and holes are filled from behind: each answer is still the definition's."""

    async def run():
        rng = random.Random(8)
        async with Running(toy, num_slots=9, num_lanes=2) as running:
            asked = []
            for index in range(120):
                source = [rng.randrange(3, 50) for _ in range(1 + index % 16)]
                asked.append((source, running.submit(source, Decoding(1 + index % 7))))
                if index % 3 == 0:
                    gone = running.submit([5] * 16, Decoding(24, 24))
                    running.engine.cancel(gone)
            for source, sequence in asked:
                await sequence.reply.done()
                assert toy.greedy(source, sequence.decoding.max_new_tokens) == sequence.reply.token_ids

    asyncio.run(run())


def test_a_step_copies_no_memory(tmp_path):
    """A step binds a memory that it only reads where it lies, and writes to none of it."""
    toy = Toy(tmp_path, attends=True)
    slots = Slots(3, 24)
    runner = DecodeRunner(toy.manifest, Session(toy.encoder_path, 1), Session(toy.path, 1), slots)
    (memory,) = (state for state in runner.states.states if state.memory)
    slots.memory_lengths[:] = 5
    runner.encode([Ids(np.arange(5)), Ids(np.arange(5, 10))], [0, 1])
    before, where = memory.buffers.copy(), memory.buffers.ctypes.data
    for _ in range(3):
        runner.decode(2)
    np.testing.assert_array_equal(toy.embedding[[range(5), range(5, 10)]], before[0, :2, :5])
    np.testing.assert_array_equal(before, memory.buffers)
    bound = runner.decodes[2, 0, True]
    assert where == bound.inputs["memory"].pointer
    assert [] == [block for block in bound.outputs.values() if block.shape[1:] == (16, 8)]


def test_a_recurrent_model_has_no_cache_entries(toy):
    """A state that does not grow fills no cache, so none is counted."""

    async def run():
        async with Running(toy) as running:
            sequence = running.submit([5], Decoding(24, 24))
            await sequence.reply.done()
            assert 0 == running.engine.stats().held.kv_total

    asyncio.run(run())


def test_a_recurrent_state_without_an_encoder_starts_at_zero(tmp_path):
    """Prompts of any length, read token by token while others run: each answer is the definition's."""
    toy = Toy(tmp_path)
    manifest = type(toy.manifest)()
    manifest.CopyFrom(toy.manifest)
    manifest.text.ClearField("start_id")
    manifest.states[0].encoder_output = ""
    slots = Slots(3, 24)
    runner = DecodeRunner(manifest, None, Session(toy.path, 1), slots)
    runner.warm()
    metrics = Metrics().for_model("toy", 1, "generate")
    lane = DecodeLane(slots, runner, start_id=None, end_ids=(2,), prefill_budget=3, metrics=metrics)
    rng = random.Random(9)
    prompts = [[rng.randrange(3, 50) for _ in range(rng.randrange(1, 12))] for _ in range(40)]

    async def answers():
        waiting = [Sequence(str(n), Ids(np.array(prompt)), Decoding(8)) for n, prompt in enumerate(prompts)]
        found = {}
        while len(found) < len(prompts):
            for delivery in lane.step(lambda _: [waiting.pop()] if waiting else []):
                found[int(delivery.sequence.request_id)] = delivery.token_ids
        return found

    found = asyncio.run(answers())
    assert [toy.continued(prompt, 8) for prompt in prompts] == [found[index] for index in range(len(prompts))]
