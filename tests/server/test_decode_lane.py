"""A decode lane's step: how much admission it allows itself while others wait for their next token."""

import asyncio
from types import SimpleNamespace

import numpy as np
import pytest

from observed_lanes import BUDGET, Admitting, Watched
from weft_server.engine import rows as rows_module
from weft_server.engine.decode_lane import PATIENCE, UNWATCHED_BUDGET
from weft_server.engine.prefill_chunks import PREFILL_BUCKETS
from weft_server.sequence import Cancelled


@pytest.fixture
def watched(tiny_repository):
    """A lane of 4 slots."""
    return Watched(tiny_repository / "tiny-generate" / "1", 4)


def test_a_lane_that_decodes_reads_no_more_of_a_prompt_than_its_budget(watched):
    """While a row runs, a step's prefill is one bucket of the budget, until the long prompt has been read."""

    async def run():
        watched.ask(4, 40)
        watched.step()
        watched.ask(44, 2)
        return [watched.step() for _ in range(4)]

    assert [16, 16, 16, 0] == asyncio.run(run())
    assert BUDGET in PREFILL_BUCKETS


def test_the_smallest_budget_keeps_no_prompt_waiting_forever(tiny_repository):
    """A step reads a chunk, whatever the budget: 44 tokens in six."""
    watched = Watched(tiny_repository / "tiny-generate" / "1", 4, budget=1)

    async def run():
        watched.ask(4, 40)
        watched.step()
        watched.ask(44, 2)
        return [watched.step() for _ in range(7)]

    assert [8, 8, 8, 8, 8, 8, 0] == asyncio.run(run())


def test_a_lane_is_closed_while_it_reads_a_long_prompt(tiny_repository):
    """More than PATIENCE steps before its end, and where it has no room: nobody need wait for it then."""
    watched = Watched(tiny_repository / "tiny-generate" / "1", 2, budget=1)

    async def run():
        states = [watched.lane.is_open()]
        watched.ask(1, 30)
        watched.step()
        states.append(watched.lane.is_open())
        watched.ask(58, 6)
        for _ in range(8):
            watched.step()
            states.append(watched.lane.is_open())
        return states

    assert 6 == PATIENCE
    # 50 left after the first, 42 after the second; at the end both slots are held.
    assert [True, True, False, *[True] * 6, False] == asyncio.run(run())


def test_a_lane_where_nobody_decodes_reads_a_whole_prompt(watched):
    """The first prompt makes nobody wait, so that one step reads it and starts to decode."""

    async def run():
        watched.ask(44, 4)
        return watched.step()

    assert 44 <= asyncio.run(run()) <= UNWATCHED_BUDGET
    assert 1 == watched.slots.num_running


def test_rows_that_nobody_watches_do_not_hold_prompts_up(watched):
    """Whoever waits for whole answers gets them sooner by full steps."""

    async def run():
        watched.ask(4, 40, streams=False)
        watched.step()
        for _ in range(3):
            watched.ask(44, 2, streams=False)
        return watched.step()

    assert 3 * 44 <= asyncio.run(run()) <= UNWATCHED_BUDGET


def test_the_budget_grows_with_the_rows_that_decode(tiny_repository):
    """With 40 rows a step may read 40 tokens of prompts: admission keeps up with what ends."""
    watched = Watched(tiny_repository / "tiny-generate" / "1", 48)

    async def run():
        for _ in range(40):
            watched.ask(1, 30)
        while watched.waiting:
            watched.step()
        watched.ask(44, 2)
        return watched.step()

    assert 32 <= asyncio.run(run()) <= 48


def test_a_stream_and_a_prompt_beside_it_share_a_run(tiny_repository):
    """Where the bundle has a graph for it, a watched step is one run: its rows, and eight tokens of the prompt."""
    watched = Watched(tiny_repository / "tiny-gpt" / "1", 4, budget=8, mixes=True)

    async def run():
        watched.ask(4, 20)
        first = watched.step()
        watched.ask(20, 2)
        return first, [watched.step() for _ in range(4)]

    assert (8, [0, 0, 0, 0]) == asyncio.run(run())
    assert [(1, 8), (1, 8), (1, 8)] == watched.mixed_runs


def test_gaps_between_tokens_are_each_rows_own(watched, monkeypatch):
    """A prompt's first token comes in the step of its second; its reading is a gap to others, and none of its own."""
    clock = [0.0]
    monkeypatch.setattr(rows_module, "time", SimpleNamespace(monotonic=lambda: clock[-1]))

    async def run():
        watched.ask(4, 6)
        watched.step()
        prefill = watched.runner.prefill

        def slow(*piece):
            clock.append(0.3)
            return prefill(*piece)

        watched.runner.prefill = slow
        watched.ask(4, 3)
        for _ in range(6):
            watched.step()
        return watched.metrics.inter_token_latency.snapshot()

    buckets, seconds = asyncio.run(run())
    assert (6 - 1) + (3 - 1) == buckets[-1][1]
    assert 0.3 == seconds


def test_rows_that_nobody_watches_get_full_steps_though_runs_could_be_mixed(tiny_repository):
    """Whoever waits for whole answers gets the prompts of others read at once."""
    watched = Watched(tiny_repository / "tiny-gpt" / "1", 4, mixes=True)

    async def run():
        watched.ask(4, 20, streams=False)
        watched.step()
        watched.ask(20, 2, streams=False)
        return watched.step()

    assert asyncio.run(run()) >= 20
    assert [] == watched.mixed_runs


@pytest.mark.parametrize("name", ["tiny-gpt", "tiny-decoder", "tiny-generate-int8"])
def test_mixed_runs_do_not_show_in_answers(name, tiny_bundle):
    """Tokens and log-probabilities are those of separate runs, bit for bit, whoever begins and ends in between."""
    directory = tiny_bundle(name)

    async def run(lane):
        rng = np.random.default_rng(5)
        while len(lane.answers) < 30 or lane.waiting or lane.lane.is_busy:
            if len(lane.answers) < 30 and rng.random() < 0.6:
                lane.ask(int(rng.integers(1, 20)), int(rng.integers(1, 12)), streams=bool(rng.random() < 0.8))
            lane.step()
        return list(lane.answers.values())

    apart, together = (Watched(directory, 5, mixes=mixes) for mixes in (False, True))
    assert asyncio.run(run(apart)) == asyncio.run(run(together))
    assert len(together.mixed_runs) > 20
    assert {num_rows for num_rows, _ in together.mixed_runs} >= {1, 2, 3}


def test_a_prompt_that_goes_while_it_is_read_beside_rows_leaves_them_alone(tiny_repository):
    """Cancelled in the middle of its prefill, a sequence ends, and the row beside it goes on."""
    watched = Watched(tiny_repository / "tiny-gpt" / "1", 4, budget=8, mixes=True)

    async def run():
        watched.ask(4, 12)
        watched.step()
        watched.ask(20, 2)
        watched.step()
        watched.lane.gone.append((list(watched.answers)[1], Cancelled()))
        while watched.lane.is_busy:
            watched.step()
        return [len(answer) for answer in watched.answers.values()]

    assert [12, 0] == asyncio.run(run())
    assert [(1, 8)] == watched.mixed_runs


def test_a_source_waits_some_steps_for_company(tmp_path):
    """Beside 9 rows of 12 that nobody watches one waits for a second, and after some steps it goes alone."""

    async def run():
        lane = Admitting(tmp_path)
        lane.ask(9)
        assert [9] == lane.step()
        lane.ask(1)
        alone = [lane.step() for _ in range(PATIENCE + 1)]
        lane.ask(1)
        first = lane.step()
        lane.ask(1)
        return alone, first, lane.step()

    alone, first, second = asyncio.run(run())
    assert [[]] * PATIENCE + [[1]] == alone
    assert ([], [2]) == (first, second)


def test_a_lane_with_room_to_spare_keeps_a_source_waiting_for_one_step(tmp_path):
    """Waiting pays where slots are short."""

    async def run():
        lane = Admitting(tmp_path, 13)
        lane.ask(9)
        lane.step()
        lane.ask(1)
        return [lane.step(), lane.step()]

    assert [[], [1]] == asyncio.run(run())


def test_a_lane_that_streams_keeps_no_source_waiting(tmp_path):
    """Its steps take few sources at a time, so that company would not come together."""

    async def run():
        lane = Admitting(tmp_path)
        lane.ask(9, streams=True)
        while lane.slots.num_running < 9:
            lane.step()
        lane.ask(1)
        return lane.step()

    assert [1] == asyncio.run(run())
