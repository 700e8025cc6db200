"""Captured steps over the stand-in: each replays its own graph, whatever else uses its session or the process."""

import asyncio
from contextlib import AsyncExitStack

import numpy as np
import pytest
from answering import all_said, answers
from driven import NUM_SLOTS, Writer
from standin import WHY_NOT, counting, verify_clean

from loaded import Loaded, ask, golden_request
from weft_proto.v1 import common_pb2
from weft_server.engine.decode_runner import DecodeRunner
from weft_server.engine.slots import Slots

pytestmark = [pytest.mark.gpu, pytest.mark.slow, pytest.mark.skipif(bool(WHY_NOT), reason=WHY_NOT or "it is there")]
CAPTURED = {"device": "cuda", "cuda_graphs": True}


def stepped(runner, slots, num_rows, token_ids):
    """The best tokens of one step, and which graphs it replayed."""
    slots.num_running = num_rows
    slots.input_ids[:num_rows, 0] = token_ids[:num_rows]
    with counting() as counts:
        found = runner.decode(num_rows).topk_ids[:, 0].tolist()
    verify_clean(counts)
    return found, counts.launches, counts.captures


def test_runners_of_one_session_replay_their_own(bundles):
    """Two lanes' runners, of other numbers of slots, step in turns at every size: one graph a step, its own."""
    first = Writer(bundles("pydocs", "fp16"), **CAPTURED)
    other_slots = Slots(NUM_SLOTS + 3, first.manifest.text.max_new_tokens)
    other = DecodeRunner(first.manifest, None, first.decoder, other_slots)
    other.warm()
    token_ids = np.arange(70, 70 + NUM_SLOTS)
    for num_rows in (1, 3, 5, 2, 4):
        one, *how = stepped(first.runner, first.slots, num_rows, token_ids)
        two, *other_how = stepped(other, other_slots, num_rows, token_ids)
        assert ([1, 0], [1, 0]) == (how, other_how)
        assert one == two


def test_every_size_of_a_batch_has_a_graph(bundles):
    """Ten steps of random sizes replay ten graphs and capture none: all were captured when the model was opened."""
    writer = Writer(bundles("en-es-attention", "fp16"), **CAPTURED).drive()
    for num_rows in np.random.default_rng(2).integers(1, NUM_SLOTS + 1, 10).tolist():
        writer.decode(num_rows)
    assert {(1, 0)} == {(step.launches, step.captures) for step in writer.steps}


def test_two_models_step_beside_each_other(bundles):
    """A captured generator and a captured translator in one process, asked at once, answer as each does on the CPU."""
    directories = [bundles(name, "fp16") for name in ("pydocs", "en-es")]
    expected = [asyncio.run(answers(directory)) for directory in directories]

    async def together():
        async with AsyncExitStack() as stack:
            models = [await stack.enter_async_context(Loaded(each, slots=3, **CAPTURED)) for each in directories]
            # Each size of a batch is captured by the lane's thread, and no other thread may use the device meanwhile.
            for model in models:
                await all_said(model)
            with counting() as counts:
                found = await asyncio.gather(*map(all_said, models))
            verify_clean(counts)
            return found

    assert expected == asyncio.run(together())


def test_explanations_run_beside_captured_steps(bundles):
    """While requests are decoded by replays, others are explained: nothing races, and both are as on the CPU."""

    async def explained(**settings):
        async with Loaded(bundles("en-es", "fp16"), slots=3, **settings) as model:
            await all_said(model)
            request = golden_request(model, explain=common_pb2.Explain())
            with counting() as counts:
                *alignments, plain = await asyncio.gather(*(ask(model, **request) for _ in range(4)), all_said(model))
            verify_clean(counts)
            return plain, np.array([each.alignment.weights for each in alignments]), counts

    plain, weights, _ = asyncio.run(explained())
    found, other_weights, counts = asyncio.run(explained(**CAPTURED))
    assert plain == found
    np.testing.assert_allclose(weights, other_weights, atol=0.02)
    assert counts.launches > 0
