"""What a decode lane on a device reads beside its rows. The CPU's memory counts as far away here.

There a run costs about as much as a step, however few tokens it reads.
"""

import asyncio

import numpy as np
import pytest

from observed_lanes import Admitting, Watched
from weft_proto.v1 import bundle_pb2
from weft_server.bundle.load import load_bundle
from weft_server.engine import decode_lane
from weft_server.engine.decode_lane import DecodeLane
from weft_server.engine.decode_runner import DecodeRunner
from weft_server.engine.run_shapes import RunShapes, runs_of
from weft_server.engine.slots import Slots
from weft_server.runtime.device import HOST, Device
from weft_server.runtime.session import Session
from weft_server.sequence import Decoding, Sequence
from weft_server.source import AskedPixels, Ids
from weft_server.telemetry.metrics import Metrics

FAR = Device(in_place=False)
# Milliseconds of a run of a prompt and of a captured step, as measured on an H200 with 100 million weights.
PREFILL_MS, STEP_MS = 1.7, 0.67


@pytest.fixture
def lane(tiny_repository):
    """A lane with 8 streams on a far device, at the smallest budget."""
    lane = Watched(tiny_repository / "tiny-generate" / "1", 12, budget=1, device=FAR)

    async def run():
        for _ in range(8):
            lane.ask(1, 40)
        lane.step()

    asyncio.run(run())
    assert 8 == lane.slots.num_running
    return lane


def test_a_prompt_beside_streams_is_read_in_one_run(lane):
    """All 44 tokens of it, where the host would read 8 in each of 6 steps."""

    async def run():
        lane.ask(44, 2)
        lane.step()
        return list(lane.runs)

    assert [(2, 64)] == asyncio.run(run())


def test_a_step_reads_no_second_prompt_beside_streams(lane):
    """However short the prompts are: each would make the streams wait as long as another step."""

    async def run():
        for _ in range(3):
            lane.ask(2, 9)
        lane.step()
        return list(lane.runs), lane.slots.num_running

    assert ([(2, 2)], 9) == asyncio.run(run())


def test_a_long_prompt_beside_streams_is_read_within_the_allowance(lane, monkeypatch):
    """A step reads as many tokens of it as cost about what a run costs anyway."""
    monkeypatch.setattr(decode_lane, "DEVICE_RUN_COST", 16)

    async def run():
        lane.ask(44, 2)
        return [lane.step() for _ in range(4)]

    assert [16, 16, 16, 0] == asyncio.run(run())


def test_prompts_that_nobody_watches_fill_a_step(tiny_repository):
    """Whoever waits for whole answers has them all read at once, on a device too."""
    lane = Watched(tiny_repository / "tiny-generate" / "1", 4, budget=1, device=FAR)

    async def run():
        for _ in range(4):
            lane.ask(2, 9, streams=False)
        lane.step()
        return len(lane.runs)

    assert 4 == asyncio.run(run())


def test_more_streams_get_no_fewer_tokens(tiny_repository):
    """32 streams in flight get as many tokens together as 8, by what a device takes for each run.

    At an allowance that grows with the rows, they would get a fifth: few rows run because prompts are read slowly, and
    prompts are read slowly because few rows run.
    """

    def tokens_per_ms(num_streams):
        lane = Watched(tiny_repository / "tiny-generate" / "1", 40, budget=8, device=FAR)

        async def run():
            elapsed, started, num_asked = 0.0, 0, 0
            for step in range(120):
                num_ended = sum(len(answer) >= 16 for answer in lane.answers.values())
                for _ in range(num_streams - num_asked + num_ended):
                    lane.ask(44, 16)
                    num_asked += 1
                lane.step()
                if step == 20:
                    elapsed, started = 0.0, sum(map(len, lane.answers.values()))
                elapsed += len(lane.runs) * PREFILL_MS + STEP_MS
            return (sum(map(len, lane.answers.values())) - started) / elapsed

        return asyncio.run(run())

    assert tokens_per_ms(32) >= tokens_per_ms(8)


@pytest.mark.parametrize(("device", "runs"), [(FAR, [8]), (HOST, [1])], ids=["far", "host"])
def test_sources_beside_streams_share_the_run_of_a_device(tmp_path, device, runs):
    """Eight short sources are one run there. Beside four rows, the host's allowance is for one."""

    async def run():
        lane = Admitting(tmp_path, 16, device=device)
        lane.ask(4, streams=True)
        while lane.slots.num_running < 4:
            lane.step()
        lane.ask(8, streams=True)
        return lane.step()

    assert runs == asyncio.run(run())


def test_lengths_share_a_run_of_a_device():
    """Padding costs it nothing there up to what a run costs, and a run has no more tokens than its shape allows."""
    longest = {"input_ids": Ids(np.zeros(256, np.int64))}
    shapes = RunShapes(FAR, lambda source: source.width, longest, most=16, budget=512)
    sources = [Sequence("r", Ids(np.zeros(length, np.int64)), None) for length in (9, 16, 40, 100, 120, 200, 250)]
    lengths = [[sequence.num_input_tokens for sequence in run] for run in runs_of(sources, shapes)]
    assert [[9, 16, 40, 100], [120, 200], [250]] == lengths


def test_one_question_beside_streams_is_read_in_a_step(tiny_repository):
    """Each question is a run of its own: a second one would make the streams wait longer."""
    bundle = load_bundle(tiny_repository / "tiny-git" / "1")
    text, image = bundle.manifest.text, bundle.manifest.image
    encoder, decoder = (
        Session(bundle.path(bundle.graph(role).path), 1, FAR)
        for role in (bundle_pb2.GRAPH_ROLE_ENCODER, bundle_pb2.GRAPH_ROLE_DECODER)
    )
    slots = Slots(6, text.max_new_tokens, text.max_source_tokens)
    runner = DecodeRunner(bundle.manifest, encoder, decoder, slots)
    metrics = Metrics().for_model("m", 1, "answer")
    lane = DecodeLane(
        slots, runner, start_id=text.start_id, end_ids=tuple(text.end_ids), prefill_budget=8, metrics=metrics
    )
    pixels = np.zeros((image.channels, image.height, image.width), np.float32)
    source = AskedPixels(pixels, (image.grid_rows, image.grid_columns), image.num_class_tokens, (5, 6))
    num_new = text.max_new_tokens
    waiting = [Sequence("r", source, Decoding(num_new, num_new), source.asked_ids, wants_tokens=True) for _ in range(4)]

    def take(intake):
        return [waiting.pop() for _ in range(min(intake.most, len(waiting)))]

    async def run():
        others, waiting[1:] = waiting[1:], []
        lane.step(take)
        waiting.extend(others)
        lane.step(take)
        return slots.num_running

    assert 2 == asyncio.run(run())
