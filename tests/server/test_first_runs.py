"""Before a model on a device is ready, its lanes have run, in their own threads, each shape that a request can need.

On the CPU the same code runs, told that the CPU's memory is far away.
"""

import asyncio
import threading
from contextlib import contextmanager
from operator import attrgetter

import numpy as np
import pytest

from far_models import answers_of
from loaded import Loaded
from running import Running
from toy import Toy
from waiting import until
from weft_server.engine import engine as engine_module
from weft_server.engine.run_shapes import RunShapes, runs_of
from weft_server.errors import LaneFailed
from weft_server.loading import build
from weft_server.runtime.device import HOST, Device
from weft_server.runtime.session import BoundSession, Session
from weft_server.sequence import Decoding, Sequence
from weft_server.source import Ids, Masked, Pixels

FAR = Device(in_place=False, captures=True)


@pytest.fixture
def far_toy(tmp_path):
    """The toy on a far device, with captures."""
    toy = Toy(tmp_path, attends=True)
    toy.encoder, toy.decoder = Session(toy.encoder_path, 1, FAR), Session(toy.path, 1, FAR, captures=True)
    return toy


def captured(runner):
    """Which threads have captured its decode runs, and which sizes and orders of buffers these have."""
    decodes = runner.decodes
    return {bound.thread and bound.thread.name for bound in decodes.values()}, {key[:2] for key in decodes}


def test_a_lane_warms_itself_in_its_own_thread(far_toy):
    """Each size of a batch, with each order of the recurrent buffers, is captured by the thread that will replay it.

    No request captures anything later.
    """

    async def run():
        async with Running(far_toy, num_slots=5) as running:
            for warm in running.warm:
                await asyncio.wait_for(asyncio.wrap_future(warm), 20)
            sizes = {(batch, flip) for batch in (1, 2, 4, 5) for flip in (0, 1)}
            assert [({"lane-0"}, sizes), ({"lane-1"}, sizes)] == list(map(captured, running.runners))
            asked = [running.submit([5, 6, n], Decoding(1 + n)) for n in range(3, 15)]
            await asyncio.gather(*(sequence.reply.done() for sequence in asked))
            assert [far_toy.greedy([5, 6, n], 1 + n) for n in range(3, 15)] == [each.reply.token_ids for each in asked]
            assert [({"lane-0"}, sizes), ({"lane-1"}, sizes)] == list(map(captured, running.runners))

    asyncio.run(run())


def test_a_lane_that_is_made_anew_warms_itself_too(far_toy):
    """After a failure the next lane is warm, in the same thread, before it takes anybody."""

    async def run():
        async with Running(far_toy, num_slots=2, num_lanes=1) as running:
            await asyncio.wrap_future(running.warm[0])

            def broken(num_rows):
                raise RuntimeError("broken")

            running.runners[0].decode = broken
            with pytest.raises(LaneFailed):
                await running.submit([5], Decoding(4)).reply.done()
            after = running.submit([7], Decoding(4))
            await after.reply.done()
            assert far_toy.greedy([7], 4) == after.reply.token_ids
            assert captured(running.runners[1]) == ({"lane-0"}, {(batch, flip) for batch in (1, 2) for flip in (0, 1)})

    asyncio.run(run())


def test_a_warm_up_shows_signs_of_life(far_toy, monkeypatch):
    """Each of its runs is one. So a warm-up of many runs is not taken for a step that hangs."""

    async def run():
        running, go_on, beats = Running(far_toy, num_slots=2, num_lanes=1), threading.Event(), []
        (lane,) = running.engine.lanes
        first_runs = lane.first_runs

        def noted():
            for _ in first_runs():
                beats.append(running.engine.last_beat)
                yield
            assert go_on.wait(20)

        lane.first_runs = noted
        async with running:
            await until(lambda: len(beats) == 4)
            assert not running.warm[0].done()
            go_on.set()
            await asyncio.wrap_future(running.warm[0])
        assert sorted(set(beats)) == beats

    asyncio.run(run())


def test_a_model_that_cannot_be_warmed_is_refused(tiny_repository, monkeypatch):
    """What the warm-up of a lane raises is heard by who loads the model, and its threads end."""
    monkeypatch.setattr(build, "devices_of", lambda _: [FAR])

    def broken(self, *_):
        raise RuntimeError("no memory for the capture")

    monkeypatch.setattr(BoundSession, "capture", broken)

    async def run():
        async with Loaded(tiny_repository / "tiny-translate" / "1", slots=2):
            pass

    with pytest.raises(RuntimeError, match="no memory for the capture"):
        asyncio.run(run())
    assert not [thread.name for thread in threading.enumerate() if thread.name.startswith("lane-")]


@contextmanager
def noted_shapes(monkeypatch):
    """Yield two sets of what lanes run on a device: before their first step, and in steps. A run is its shapes."""
    first, later = set(), set()

    def note(session, shapes):
        # Graphs that copy have no plans.
        if "lane-" in threading.current_thread().name and not session.input_names[0].startswith("x"):
            kind = later if _STEPS.is_in else first
            kind.add((id(session), *sorted((name, shape) for name, shape in shapes)))

    def noting(owner, name, shapes_of):
        method = getattr(owner, name)

        def noted(self, *arguments):
            note(*shapes_of(self, *arguments))
            return method(self, *arguments)

        monkeypatch.setattr(owner, name, noted)

    def of_arrays(session, feeds):
        return session, [(name, array.shape) for name, array in feeds.items()]

    def of_blocks(bound):
        ports = bound.inputs | {f"to {name}": block for name, block in bound.outputs.items()}
        return bound.session, [(name, block.shape) for name, block in ports.items()]

    noting(Session, "run", of_arrays)
    noting(Session, "run_there", of_arrays)
    noting(BoundSession, "run", of_blocks)
    step = engine_module.Engine._step

    def stepping(self, *arguments):
        _STEPS.is_in = True
        return step(self, *arguments)

    monkeypatch.setattr(engine_module.Engine, "_step", stepping)
    yield first, later


class _Steps(threading.local):
    """Whether a lane's thread has begun to step."""

    is_in = False


_STEPS = _Steps()
FAMILIES = ("tiny-translate", "tiny-caption", "tiny-generate", "tiny-text", "tiny-image", "tiny-tags", "tiny-rnn")


@pytest.mark.parametrize("name", FAMILIES)
def test_no_request_is_the_first_of_a_shape(tiny_repository, name, monkeypatch):
    """Whatever requests come together, greedy, sampled and searched, each run's shapes have run before any of them."""
    with noted_shapes(monkeypatch) as (first, later):
        asyncio.run(answers_of(tiny_repository / name / "1", FAR, monkeypatch))
    assert later
    assert set() == later - first


def test_prompts_end_in_a_bucket_up_to_the_end_of_the_cache(tiny_repository, monkeypatch):
    """Prompts of every length, also those that leave room for one token, are read in runs of warmed lengths."""
    directory = tiny_repository / "tiny-generate" / "1"
    near = asyncio.run(every_prompt(directory, HOST, monkeypatch))
    with noted_shapes(monkeypatch) as (first, later):
        assert near == asyncio.run(every_prompt(directory, FAR, monkeypatch))
    assert later
    assert set() == later - first


async def every_prompt(directory, device, monkeypatch):
    """The next token after prompts of each length that the model takes."""
    monkeypatch.setattr(build, "devices_of", lambda _: [device])
    async with Loaded(directory, slots=4, lanes=1, threads=1) as model:
        sequences = []
        for length in range(1, model.manifest.text.max_total_tokens):
            model.engine.reserve()
            sequences.append(Sequence(str(length), Ids(np.arange(length) % 200 + 3), Decoding(1)))
            model.engine.submit(sequences[-1])
        for sequence in sequences:
            await sequence.reply.done()
        return [sequence.reply.token_ids for sequence in sequences]


def shapes_of(device, longest, *, most, budget):
    """Shapes of runs whose longest text has so many tokens."""
    return RunShapes(device, attrgetter("bucket"), {"input_ids": Ids(np.zeros(longest, int))}, most=most, budget=budget)


def test_a_device_has_few_shapes():
    """Widths double from 16 to the longest input's, numbers of rows from 1; no run has more tokens than the budget.

    The largest are tried first.
    """
    shapes = shapes_of(FAR, 300, most=12, budget=600)
    trials = [(shapes.width(sources[0]), len(sources)) for sources in shapes.trials()]
    by_width = {16: 5, 32: 5, 64: 4, 128: 3, 256: 2, 300: 2}
    assert [(width, rows) for width, num in by_width.items() for rows in (1, 2, 4, 8, 12)[:num]] == trials[::-1]
    for length in range(1, 301):
        source = Ids(np.zeros(length, int))
        for num_inputs in range(1, shapes.limit(source) + 1):
            assert (shapes.width(source), shapes.num_rows(num_inputs)) in trials
    assert [] == list(shapes_of(HOST, 300, most=12, budget=600).trials())


def test_rows_that_fill_a_batch_are_copies_of_its_last():
    """So whatever a graph does with a row, it can do with these; lengths stay those of the inputs."""
    shapes = shapes_of(FAR, 40, most=8, budget=1000)
    feeds = shapes.feeds([Ids(np.array([5])), Ids(np.array([6, 7])), Ids(np.array([8, 9, 4]))], pad_id=0)
    assert (4, 16) == feeds["input_ids"].shape
    assert [1, 2, 3, 3] == feeds["lengths"].tolist()
    assert [8, 9, 4, 0] == feeds["input_ids"][3, :4].tolist()


@pytest.mark.parametrize("device", [HOST, FAR])
def test_a_run_has_no_more_masks_than_inputs(device):
    """Each has a row of logits for the whole vocabulary. Inputs with other numbers of masks share no run."""
    shapes = shapes_of(device, 40, most=12, budget=10_000)
    masked = [Masked(np.zeros(20, int), np.arange(count)) for count in (1, 4, 5, 16)]
    most = {HOST: [12, 3, 2, 1], FAR: [12, 2, 2, 1]}[device]
    assert most == [shapes.limit(each) for each in masked]
    assert 4 == len({shapes.alike(each) for each in masked})


def test_trials_of_a_model_that_fills_masks_have_one():
    """At a position that the shortest has."""
    longest = Masked(np.zeros(40, int), np.zeros(1, int))
    shapes = RunShapes(FAR, attrgetter("bucket"), {"input_ids": longest}, most=2, budget=1000)
    fed = [shapes.feeds(sources, 0)["mask_positions"].tolist() for sources in shapes.trials()]
    assert [[[0]] * 2, [[0]]] * 3 == fed


def test_pictures_are_not_padded():
    """All pictures of a model have one width. Only their number is rounded up."""
    picture = Pixels(np.zeros((3, 8, 8), np.float32), (3, 3))
    shapes = RunShapes(FAR, attrgetter("width"), {"pixel_values": picture}, most=5, budget=1000)
    assert [(9, 5), (9, 4), (9, 2), (9, 1)] == [(shapes.width(each[0]), len(each)) for each in shapes.trials()]
    assert (4, 3, 8, 8) == shapes.feeds([picture] * 3, 0)["pixel_values"].shape


def test_texts_of_one_rounded_width_are_a_batch_on_a_device():
    """There 65 and 127 tokens cost the same. On the host each is padded by its own length."""
    short, long = Ids(np.zeros(65, int)), Ids(np.zeros(127, int))
    for device, alike in ((FAR, True), (HOST, False)):
        shapes = shapes_of(device, 300, most=12, budget=6000)
        assert alike == (shapes.alike(short) == shapes.alike(long))


def test_an_encoders_run_on_a_device_has_one_of_the_warmed_shapes():
    """However many sources are admitted together, they form runs that have run before, and nobody is lost."""
    longest = Ids(np.zeros(200, int))
    shapes = RunShapes(FAR, attrgetter("width"), {"input_ids": longest}, most=16, budget=512)
    warm = {len(sources) * shapes.width(sources[0]) for sources in shapes.trials()}
    rng = np.random.default_rng(1)
    for _ in range(50):
        lengths = rng.integers(1, 201, rng.integers(1, 17)).tolist()
        runs = runs_of([Sequence(str(n), Ids(np.zeros(n, int)), None) for n in lengths], shapes)
        assert sorted(lengths) == sorted(sequence.num_input_tokens for run in runs for sequence in run)
        assert {shapes.computed_tokens([sequence.source for sequence in run]) for run in runs} <= warm
