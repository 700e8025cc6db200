"""Laws of a lane over a paged cache: the same answers in any company and any memory, and no block is lost."""

import asyncio
import ctypes
import itertools
import random
from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from paged_served import BLOCK_TOKENS, LARGE, LEAST, Served, mixture, needs, served
from paged_toy import MAX_TOTAL, VOCAB, PagedToy
from weft_server.engine import rows as rows_module
from weft_server.engine.paged.packing import Packing, Shape
from weft_server.errors import DeadlineExpired, LaneFailed
from weft_server.runtime.device import Device
from weft_server.runtime.session import Session, Value
from weft_server.sampling.sampler import Sampling
from weft_server.sequence import Cancelled, Decoding, FinishReason

FAR = Device(in_place=False)


@pytest.fixture(scope="module")
def toy(tmp_path_factory):
    """The toy, and a session of it."""
    toy = PagedToy(tmp_path_factory.mktemp("toy"), BLOCK_TOKENS)
    toy.session = Session(toy.path, 1, FAR)
    return toy


def test_greedy_answers_are_the_definitions(toy):
    """Whoever is beside whom, whatever shares a run: each gets what the definition gives."""
    requests = [(prompt, Decoding(decoding.max_new_tokens), streams) for prompt, decoding, streams in mixture(1)]
    lane = asyncio.run(served(toy, LARGE, requests))
    assert [toy.greedy(prompt, decoding.max_new_tokens) for prompt, decoding, _ in requests] == lane.answers
    assert 0 == lane.metrics.preemptions.value


@pytest.mark.parametrize(("seed", "most_read"), [(0, None), (1, 8), (2, 8), (3, 16)])
def test_a_small_pool_gives_the_answers_of_a_large_one(toy, seed, most_read):
    """Draws, rules, searches, alternatives and streams, parked again and again, are what they are with much room."""
    small = LEAST + 3
    requests = [each for each in mixture(seed, 60) if needs(*each[:2]) <= small]
    roomy = asyncio.run(served(toy, LARGE, requests))
    tight = asyncio.run(served(toy, small, requests, most_read=most_read))
    assert list(roomy.given.values()) == list(tight.given.values())
    assert list(roomy.outputs.values()) == [tight.outputs[each] for each in _alike(roomy, tight)]
    assert 0 == roomy.metrics.preemptions.value
    assert tight.metrics.preemptions.value > len(requests) // 4


def _alike(one, other):
    """The sequences of another lane in the order in which those of the first have ended."""
    named = {sequence.request_id: sequence for sequence in other.given}
    return [named[sequence.request_id] for sequence in one.outputs]


def test_every_kind_is_parked_somewhere(toy):
    """Else the law above would hold of nothing: rows alone, several, searches, and prompts in prefill."""
    lane, parked = Served(toy, LEAST + 3, most_read=8), set()
    rows = lane.lane.rows
    park = rows.park

    def watched(sequence):
        decoding = sequence.decoding
        kind = "search" if decoding.beams else "alternatives" if decoding.alternatives else "draws"
        parked.add((kind if sequence.width > 1 else "one", sequence in rows.prompts))
        return park(sequence)

    rows.park = watched

    async def run():
        for prompt, decoding, _ in mixture(3, 150):
            if needs(prompt, decoding) <= LEAST + 3:
                lane.ask(prompt, decoding)
        lane.run()

    asyncio.run(run())
    assert {("one", True), *((kind, False) for kind in ("one", "draws", "search", "alternatives"))} <= parked


@pytest.mark.parametrize("how", [{"sampling": Sampling(9.0, 0, 1.0, seed=7)}, {"alternatives": True}])
def test_rows_that_have_ended_stay_ended(toy, how):
    """Of several rows that are parked when some have ended, the others begin anew, and all answers are as with room."""

    def requests(seed):
        prompt = np.random.default_rng(seed).integers(9, VOCAB, 5).tolist()
        yield [3] * 28, Decoding(30, 30), False
        yield prompt, Decoding(14, num_outputs=4, stop_ids=frozenset(range(5, 12)), **how), False

    async def run(seed, num_blocks, num_ended):
        lane = Served(toy, num_blocks)
        park = lane.lane.rows.park
        lane.lane.rows.park = lambda sequence: num_ended.append(len(sequence.outputs)) or park(sequence)
        for prompt, decoding, _ in requests(seed):
            lane.ask(prompt, decoding, wants_scores=True)
        lane.run()
        return list(lane.given.values()), [lane.outputs[sequence] for sequence in lane.given]

    num_ended = []
    for seed in range(10):
        assert asyncio.run(run(seed, LARGE, [])) == asyncio.run(run(seed, LEAST + 2, num_ended))
    assert max(num_ended) > 0


def test_the_oldest_always_goes_on(toy):
    """However small the pool, each step gives the oldest row a token; so nobody starves."""

    async def run():
        lane = Served(toy, LEAST)
        rng = random.Random(5)
        for _ in range(12):
            lane.ask([rng.randrange(3, VOCAB) for _ in range(rng.randrange(1, 20))], Decoding(30, 30))
        lane.step()
        while lane.lane.is_busy:
            there = [each for each in lane.given if each.turn and each not in lane.outcomes]
            oldest = min(there, key=lambda each: each.turn)
            before = produced(lane, oldest)
            lane.step()
            assert oldest in lane.outcomes or before + 1 == produced(lane, oldest)
        return lane.metrics.preemptions.value

    assert asyncio.run(run()) > 5


def produced(lane, sequence):
    """How many tokens a row has produced, in its slot or out of it."""
    if sequence.slot is not None:
        return int(lane.slots.num_new[sequence.slot])
    return next(parked.kept.num_new for parked in lane.lane.parked if parked.sequence is sequence)


def test_nobody_overtakes_who_was_parked(toy):
    """Equal ones end in the order in which they came: whoever is parked begins again before anybody who waits."""

    async def run():
        lane = Served(toy, LEAST, num_slots=4)
        for _ in range(20):
            lane.ask([5, 6, 7], Decoding(24, 24))
        lane.run()
        return lane.metrics.preemptions.value, [lane.ended_in[sequence] for sequence in lane.given]

    num_parked, ended_in = asyncio.run(run())
    assert num_parked > 0
    assert sorted(ended_in) == ended_in


def test_a_stream_that_is_parked_neither_repeats_nor_loses_a_token(toy):
    """Each delivery is the next token, before and after it was parked."""

    async def run():
        lane = Served(toy, LEAST, num_slots=3)
        for start in (5, 6, 7):
            lane.ask([start] * 3, Decoding(40, 40, sampling=Sampling(4.0, 0, 1.0, seed=start)), wants_tokens=True)
        deliveries = []
        note = lane.note

        def watched(delivery):
            deliveries.append((delivery.sequence.request_id, len(delivery.token_ids)))
            note(delivery)

        lane.note = watched
        lane.run()
        return lane, deliveries

    tight, deliveries = asyncio.run(run())
    requests = [([start] * 3, Decoding(40, 40, sampling=Sampling(4.0, 0, 1.0, seed=start))) for start in (5, 6, 7)]
    roomy = asyncio.run(served(toy, LARGE, [(*request, True) for request in requests], 3))
    assert [[token for token, _ in given] for given in roomy.given.values()] == tight.answers
    assert tight.metrics.preemptions.value > 0
    assert {(name, 1) for name in "012"} == set(deliveries)
    assert 3 * 40 == len(deliveries)


@settings(max_examples=25, deadline=None)
@given(st.data())
def test_nothing_leaks_whoever_goes(toy, data):
    """Over any order of coming, cancelling, being late and failing: all blocks are free at the end, all have ended."""
    requests = list(mixture(data.draw(st.integers(0, 5)), 25))

    async def run():
        lane = Served(toy, LEAST + 2, num_slots=4)
        waiting = [each for each in requests if needs(*each[:2]) <= LEAST + 2]
        while waiting:
            for prompt, decoding, streams in waiting[:3]:
                late = data.draw(st.sampled_from([False, False, False, True]))
                deadline = -1.0 if late and data.draw(st.booleans()) else float("inf")
                lane.now = -10.0  # the queue lets all through, so that the lane finds who is late
                lane.ask(prompt, decoding, wants_tokens=streams, deadline=deadline)
            del waiting[:3]
            for _ in range(data.draw(st.integers(1, 4))):
                lane.step()
            admitted = [each for each in lane.given if each.lane is not None and each not in lane.outcomes]
            for sequence in admitted[: data.draw(st.integers(0, 2))]:
                lane.lane.gone.append((sequence, Cancelled()))
        if data.draw(st.booleans()):
            lane.run()
        else:
            for delivery in lane.lane.fail(lambda: LaneFailed("STEP_FAILED", "broken")):
                lane.note(delivery)
            assert 0 == lane.runner.pool.num_held == lane.slots.num_used == lane.scheduler.loads[0]
            lane.check()
        return lane

    lane = asyncio.run(run())
    ends = [lane.outcomes[each] for each in lane.given if each.lane is not None]
    assert all(isinstance(end, FinishReason | Cancelled | DeadlineExpired | LaneFailed) for end in ends)


def test_who_is_parked_and_late_or_gone_ends(toy):
    """One who holds nothing is not forgotten: its deadline and its caller count as before."""

    async def run(end):
        lane = Served(toy, LEAST, num_slots=2)
        first = lane.ask([3] * 20, Decoding(40, 40))
        second = lane.ask([4] * 20, Decoding(40, 40))
        while not lane.lane.parked:
            lane.step()
        assert [second] == [parked.sequence for parked in lane.lane.parked]
        end(lane, second)
        lane.step()
        assert not lane.lane.parked
        outcome, num_tokens = lane.outcomes[second], second.num_output_tokens
        lane.run()
        return type(outcome), num_tokens > 0, lane.outcomes[first]

    def is_late(_, sequence):
        sequence.deadline = 0.0

    def goes(lane, sequence):
        lane.lane.gone.append((sequence, Cancelled()))

    assert (DeadlineExpired, True, FinishReason.LENGTH) == asyncio.run(run(is_late))
    assert (Cancelled, True, FinishReason.LENGTH) == asyncio.run(run(goes))


def test_the_gaps_between_tokens_are_all_the_time_that_rows_take(toy, monkeypatch):
    """Each token but a row's first has a gap before it, and a row's gaps are its time, those of parking too."""

    async def run(num_blocks):
        lane = Served(toy, num_blocks)
        # The clock says how many steps there were.
        monkeypatch.setattr(rows_module, "time", SimpleNamespace(monotonic=lambda: float(lane.num_steps)))
        requests = [(prompt, Decoding(decoding.max_new_tokens)) for prompt, decoding, _ in mixture(4)]
        for prompt, decoding in requests:
            lane.ask(prompt, decoding)
        lane.run()
        buckets, total = lane.metrics.inter_token_latency.snapshot()
        num_gaps = sum(sequence.num_output_tokens - 1 for sequence in lane.given)
        time = sum(lane.ended_in[sequence] - sequence.times.first_token for sequence in lane.given)
        return lane.metrics.preemptions.value, (num_gaps, time), (buckets[-1][1], total)

    num_parked, expected, actual = asyncio.run(run(LEAST))
    assert num_parked > 10
    assert expected == actual
    assert expected[0] < expected[1]
    num_parked, expected, actual = asyncio.run(run(LARGE))
    assert 0 == num_parked
    assert expected == actual


def test_every_token_produced_is_in_an_answer_or_wasted(toy):
    """Rows that begin anew produce again what they had. So much is wasted, and no token is missing or counted twice."""

    async def run(num_blocks):
        lane = Served(toy, num_blocks, most_read=8)
        for prompt, decoding, streams in mixture(3, 60):
            if needs(prompt, decoding) <= LEAST + 3 and not decoding.beams:
                lane.ask(prompt, decoding, wants_tokens=streams)
        lane.run()
        answered = sum(sequence.num_output_tokens for sequence in lane.given)
        return answered, lane.metrics.wasted_tokens.value, lane.metrics.generated_tokens.value

    answered, wasted, generated = asyncio.run(run(LARGE))
    assert (answered, 0) == (generated, wasted)
    again, wasted, generated = asyncio.run(run(LEAST + 3))
    assert answered == again
    assert wasted > 0
    assert answered + wasted == generated


def test_several_prompts_and_rows_share_a_run(toy):
    """A step is one run, whatever is in it."""

    async def run():
        lane, runs = Served(toy), []
        run = lane.runner.run

        def watched(num_rows, pieces):
            runs.append((num_rows, [len(piece.token_ids) for piece in pieces]))
            return run(num_rows, pieces)

        lane.runner.run = watched
        lane.ask([3] * 5, Decoding(9, 9))
        lane.step()
        for length in (4, 11, 17):
            lane.ask([3] * length, Decoding(9, 9))
        lane.step()
        lane.step()
        return runs

    assert [(0, [5]), (1, [4, 11, 17]), (4, [])] == asyncio.run(run())


def test_a_long_prompt_is_read_in_pieces_beside_rows(toy):
    """No step reads more of prompts than its budget, and each gives the row beside them a token."""

    async def run():
        lane, pieces = Served(toy), []
        lane.lane.budget = 8
        run = lane.runner.run

        def watched(num_rows, given):
            pieces.append([len(piece.token_ids) for piece in given])
            return run(num_rows, given)

        lane.runner.run = watched
        streamed = lane.ask([3] * 5, Decoding(20, 20), wants_tokens=True)
        lane.step()
        for length in (20, 3):
            lane.ask([3] * length, Decoding(9, 9), wants_tokens=True)
        for _ in range(4):
            lane.step()
        return pieces, len(lane.given[streamed])

    assert ([[5], [8], [8], [4, 3], []], 5) == asyncio.run(run())


def test_what_cannot_begin_waits_and_lets_nobody_pass(toy):
    """The first who waits needs more blocks than are free: those behind it, who would fit, wait too."""

    async def run():
        lane = Served(toy, LEAST + 5)
        lane.ask([3] * 36, Decoding(20, 20))
        lane.step()
        large, small = lane.ask([4] * 44, Decoding(2, 2)), lane.ask([5] * 2, Decoding(2, 2))
        lane.step()
        waits = large.lane is None and small.lane is None
        lane.run()
        return waits, large.turn < small.turn

    assert (True, True) == asyncio.run(run())


def test_a_lane_without_blocks_is_not_waited_for(toy):
    """Other lanes take what a lane has slots for and no blocks, or what would wait for the end of a long prompt."""

    async def run():
        served = Served(toy, num_blocks=LEAST, most_read=1)
        served.ask([3] * (MAX_TOTAL - 4), Decoding(4))
        served.step()
        is_open = [served.lane.is_open()]
        while not served.slots.num_running:
            served.step()
        is_open.append(served.lane.is_open())
        served.ask([3] * 8, Decoding(4))
        served.step()
        is_open.append(served.lane.is_open())
        assert 1 == len(served.scheduler.waiting)
        served.run()
        return [*is_open, served.lane.is_open()]

    assert [False, True, False, True] == asyncio.run(run())


def test_usage_is_told_in_tokens(toy):
    """Blocks that are held and all blocks, times their tokens."""

    async def run():
        lane = Served(toy, 30)
        lane.ask([3] * 9, Decoding(9, 9))
        lane.step()
        return lane.lane.usage()

    assert (1, 6, 12, 120) == asyncio.run(run())


def test_runs_have_few_shapes_and_all_are_warm(toy):
    """Whatever comes: no run is of a shape that was not run before the first request."""
    lane = Served(toy, LARGE)
    list(lane.lane.first_runs())
    assert 0 == lane.runner.pool.num_held
    warm = {shape for shape, _ in lane.runner.bound}
    before = len(warm)

    async def run():
        for prompt, decoding, _ in itertools.chain(mixture(1), mixture(2)):
            lane.ask(prompt, decoding)
            lane.step()
        lane.run()

    asyncio.run(run())
    assert before == len({shape for shape, _ in lane.runner.bound})
    # 1, 2, 4, 6 rows, and pieces of 2, 4, 8, 16, 32, 64, 128, 256, 384 tokens beside up to 6.
    assert 4 + 9 == before


def test_all_that_a_run_is_given_goes_in_one_transfer(toy, monkeypatch):
    """A step sends once and fetches once, with rows and prompts in it."""
    lane = Served(toy)
    sent, fetched = [], []

    async def run():
        lane.ask([3] * 5, Decoding(9, 9))
        lane.step()
        monkeypatch.setattr("weft_server.runtime.session.Value.send", _counting(sent, "send"))
        monkeypatch.setattr("weft_server.runtime.session.Value.fetch", _counting(fetched, "fetch"))
        lane.ask([3] * 7, Decoding(9, 9))
        lane.step()

    asyncio.run(run())
    assert (1, 1) == (len(sent), len(fetched))


def _counting(calls, name):
    method = getattr(Value, name)

    def counting(self, *args):
        calls.append(name)
        return method(self, *args)

    return counting


def held_by(block):
    """The numbers that a run would read."""
    data = (ctypes.c_char * block.num_bytes).from_address(block.pointer)
    return np.frombuffer(data, {4: np.int32, 8: np.int64}[block.item_bytes]).reshape(block.shape)


@pytest.mark.parametrize("device", [Device(), FAR], ids=["host", "far"])
def test_a_run_of_fewer_rows_keeps_nothing_of_the_last_one(device):
    """Behind its rows stand those without tokens, and behind its tokens some that are written nowhere."""
    packing = Packing(Shape(6, 3), 2, BLOCK_TOKENS, 1, device)
    packing.fill(
        np.arange(10, 16), np.array([3, 2, 1]), np.array([1, 2, 5]), np.arange(1, 7, dtype=np.int32).reshape(3, 2)
    )
    packing.fill(np.array([7, 8]), np.array([2]), np.array([3]), np.array([[4, 2]], np.int32))
    held = {name: held_by(block).tolist() for name, block in packing.ports().items()}
    assert {
        "input_ids": [7, 8, 1, 1, 1, 1],
        "positions": [3, 4, 0, 0, 0, 0],
        "slot_mapping": [4 * BLOCK_TOKENS + 3, 2 * BLOCK_TOKENS, -1, -1, -1, -1],
        "cumulative_lengths": [0, 2, 2, 2],
        "past_lengths": [3, 0, 0],
        "block_table": [[4, 2], [0, 0], [0, 0]],
        "attention_bounds": [2, 5, 5],
    } == held
