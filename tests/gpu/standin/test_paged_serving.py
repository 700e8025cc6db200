"""A server's model over caches in blocks on ONNX Runtime's CUDA provider, over a stand-in for the device.

Its lane, its pool, its copies and its transfers are real. For the operator see test_paged.py.
"""

import asyncio
from dataclasses import replace

import numpy as np
import pytest
from standin import WHY_NOT, counting, device, held, verify_clean
from tiny import randomised, save_tiny, tiny_generate

from loaded import Loaded
from paged_bundles import gigabytes_of
from weft_export.checkpoints.directory import save_checkpoint
from weft_export.export import export_checkpoint
from weft_export.families.causal_lm import CausalLm
from weft_export.options import ExportOptions
from weft_server.engine.paged.packing import PackedShapes
from weft_server.loading.golden import verify_golden
from weft_server.sampling.sampler import Sampling
from weft_server.sequence import Beams, Decoding, Sequence
from weft_server.source import Ids

pytestmark = [pytest.mark.gpu, pytest.mark.slow, pytest.mark.skipif(bool(WHY_NOT), reason=WHY_NOT or "it is there")]
KINDS = (
    {},
    {"sampling": Sampling(2.0, 0, 1.0, 3)},
    {"sampling": Sampling(2.0, 0, 1.0, 4), "num_outputs": 2},
    {"beams": Beams(2)},
    {"alternatives": True, "num_outputs": 2},
)


@pytest.fixture(autouse=True)
def _flash(monkeypatch):
    # The provider reads it when a session is opened.
    monkeypatch.setenv("ORT_DISABLE_FLASH_ATTENTION", "0")


@pytest.fixture(scope="module", params=[False, True], ids=["float16", "8 bits"])
def paged(request, tmp_path_factory):
    """A tiny generator at fp16, with its cache in blocks: as it is, or rounded."""
    folder = tmp_path_factory.mktemp("paged")
    export_checkpoint(
        save_tiny("tiny-generate", folder / "c"),
        folder / "m" / "1",
        ExportOptions(precision="fp16", paged=True, rounded_caches=request.param, no_explain=True, no_score=True),
    )
    return folder / "m" / "1"


async def submitted(model, index, prompt, max_new, *, cache_salt="", **decoding):
    """A sequence that waits."""
    model.engine.reserve()
    decoded = Decoding(max_new, max_new, **decoding)
    sequence = Sequence(str(index), Ids(np.array(prompt)), decoded, cache_salt=cache_salt)
    model.engine.submit(sequence)
    return sequence


async def asked_of_every_kind(model):
    """Ten requests together, each of which writes six tokens."""
    rng = np.random.default_rng(1)
    sequences = [
        await submitted(model, index, rng.integers(3, 200, 5 + index), 6, **KINDS[index % len(KINDS)])
        for index in range(10)
    ]
    for sequence in sequences:
        await sequence.reply.done()
    return sequences


def written(sequence):
    """The tokens of all answers of a request."""
    return [list(answer.token_ids) for answer in sequence.reply.outputs or [sequence.reply]]


def test_all_kinds_of_requests_are_served_from_blocks(paged):
    """The golden answer is the CPU's. With room for two sequences, others wait. No kernel is unknown, none races.

    Captured runs give the same answers as plain ones.
    """

    async def run(**settings):
        async with Loaded(paged, slots=4, device="cuda", cache_gb=gigabytes_of(paged, 2), **settings) as model:
            await verify_golden(model)
            sequences = await asked_of_every_kind(model)
            (lane,) = model.engine.lanes
        return sequences, lane.runner.pool

    found = []
    for cuda_graphs in (False, True):
        with counting() as counts:
            sequences, pool = asyncio.run(run(cuda_graphs=cuda_graphs))
        verify_clean(counts)
        assert cuda_graphs == bool(counts.launches)
        pool.check_integrity()
        assert 0 == pool.num_held
        found.append([written(sequence) for sequence in sequences])
        for sequence, answers in zip(sequences, found[-1], strict=True):
            assert [6] * sequence.decoding.num_outputs == [len(answer) for answer in answers]
    plain, captured = found
    assert plain == captured


@pytest.mark.parametrize("cuda_graphs", [False, True], ids=["plain", "captured"])
def test_no_request_over_blocks_pays_for_being_the_first(paged, cuda_graphs):
    """Once a model is ready, requests of each kind capture nothing, and take no memory of the device."""

    async def run():
        async with Loaded(paged, slots=4, device="cuda", cuda_graphs=cuda_graphs) as model:
            with counting() as counts:
                await asked_of_every_kind(model)
            return counts

    counts = asyncio.run(run())
    verify_clean(counts)
    assert (0, 0) == (counts.captures, counts.allocations)


def test_shapes_are_warmed_from_large_to_small(paged, monkeypatch):
    """In the other order the device gives more memory before the model is ready."""

    async def taken():
        before = held()["allocated_bytes"]
        async with Loaded(paged, slots=16, device="cuda") as model:
            await asked_of_every_kind(model)
            return held()["allocated_bytes"] - before

    large_first = asyncio.run(taken())
    ordered = PackedShapes.all
    monkeypatch.setattr(PackedShapes, "all", lambda shapes: ordered(shapes)[::-1])
    assert large_first < asyncio.run(taken())


@pytest.fixture(scope="module")
def longer(tmp_path_factory):
    """The same for longer sequences: two blocks of 256 tokens each."""
    folder = tmp_path_factory.mktemp("longer")
    tiny = tiny_generate()
    tiny.text.max_total_tokens, tiny.text.max_new_tokens = 512, 511
    model = CausalLm(replace(tiny.model.config, max_tokens=512))
    save_checkpoint(folder / "c", replace(tiny, model=randomised(model)))
    export_checkpoint(
        folder / "c", folder / "m" / "1", ExportOptions(precision="fp16", paged=True, no_explain=True, no_score=True)
    )
    return folder / "m" / "1"


@pytest.mark.parametrize("cuda_graphs", [False, True], ids=["plain", "captured"])
def test_a_sequence_that_is_parked_goes_on(longer, cuda_graphs):
    """Two grow into a second block each, and there are three: the younger is read again. Nothing strays or is left."""
    settings = {"slots": 2, "device": "cuda", "cache_gb": gigabytes_of(longer, 3), "cuda_graphs": cuda_graphs}

    async def run():
        async with Loaded(longer, **settings) as model:
            rng = np.random.default_rng(2)
            sequences = [await submitted(model, index, rng.integers(3, 200, 250), 20) for index in range(2)]
            for sequence in sequences:
                await sequence.reply.done()
            (lane,) = model.engine.lanes
            return sequences, lane.runner.pool, model.metrics.preemptions.value

    with counting() as counts:
        sequences, pool, num_parked = asyncio.run(run())
    verify_clean(counts)
    assert [20, 20] == [len(sequence.reply.token_ids) for sequence in sequences]
    assert num_parked > 0
    assert 0 == pool.num_held


@pytest.mark.parametrize("cuda_graphs", [False, True], ids=["plain", "captured"])
def test_rows_read_the_blocks_that_prompts_share(longer, cuda_graphs):
    """What was read of a beginning is read by others where it lies: alone, together and captured, with the same tokens.

    Once the model is ready, none of it captures anything or takes memory. Another tenant finds nothing.
    """
    rng = np.random.default_rng(3)
    begin = rng.integers(3, 200, 256)
    prompts = [np.concatenate([begin, rng.integers(3, 200, 5 + index)]) for index in range(6)]

    async def run(prefix_cache_mb):
        settings = {"slots": 4, "device": "cuda", "cuda_graphs": cuda_graphs, "prefix_cache_mb": prefix_cache_mb}
        async with Loaded(longer, **settings) as model:
            (lane,) = model.engine.lanes
            with counting() as counts:
                alone = [await submitted(model, index, prompts[index], 8) for index in range(2)]
                for sequence in alone:
                    await sequence.reply.done()
                together = [await submitted(model, index, prompts[index], 8) for index in range(2, 6)]
                for sequence in together:
                    await sequence.reply.done()
                tables = lane.runner.pool.kept_blocks
                other = await submitted(model, 6, prompts[0], 8, cache_salt="another")
                await other.reply.done()
            sequences = [*alone, *together, other]
            assert bool(lane.block_cache) == bool(prefix_cache_mb)
            assert len(tables) == bool(prefix_cache_mb)
            return [written(each) for each in sequences], [each.num_cached_tokens for each in sequences], counts

    plain, none, counts = asyncio.run(run(0))
    verify_clean(counts)
    shared, found, counts = asyncio.run(run(1))
    verify_clean(counts)
    assert plain == shared
    assert [0] * 7 == none
    assert [0, 0, *[256] * 4, 0] == found
    assert (0, 0) == (counts.captures, counts.allocations)
    assert cuda_graphs == bool(counts.launches)


@pytest.mark.parametrize("cuda_graphs", [False, True], ids=["plain", "captured"])
def test_blocks_on_two_devices(paged, cuda_graphs):
    """A lane and a pool on each. Both are worked, and nothing strays."""

    async def run():
        settings = {"slots": 4, "lanes": 2, "device": "cuda", "cuda_device": "0,1", "cuda_graphs": cuda_graphs}
        async with Loaded(paged, cache_gb=gigabytes_of(paged, 4), **settings) as model:
            await verify_golden(model)
            before = [device(index).operations for index in range(2)]
            sequences = [await submitted(model, index, [3, 4, 5 + index], 6) for index in range(8)]
            for sequence in sequences:
                await sequence.reply.done()
            after = [device(index).operations for index in range(2)]
            assert {"cuda:0", "cuda:1"} == set(model.devices)
            return sequences, [lane.runner.pool for lane in model.engine.lanes], np.subtract(after, before)

    with counting() as counts:
        sequences, pools, num_operations = asyncio.run(run())
    verify_clean(counts)
    assert [6] * 8 == [len(sequence.reply.token_ids) for sequence in sequences]
    assert [0, 0] == [pool.num_held for pool in pools]
    assert num_operations.min() > 0


@pytest.mark.parametrize("cuda_graphs", [False, True], ids=["plain", "captured"])
def test_a_step_over_blocks_is_one_transfer_each_way(paged, cuda_graphs):
    """Four tokens more are four steps more: four transfers to the device, and four back.

    Captured, each step is one launch.
    """

    async def transfers(num_tokens):
        async with Loaded(paged, slots=3, device="cuda", cuda_graphs=cuda_graphs) as model:
            await (await submitted(model, 0, [3, 4, 5], num_tokens)).reply.done()
            with counting() as counts:
                await (await submitted(model, 1, [3, 4, 5], num_tokens)).reply.done()
        return np.array([counts.to_device, counts.to_host, counts.launches])

    few, more = (asyncio.run(transfers(number)) for number in (4, 8))
    assert [4, 4, 4 * cuda_graphs] == (more - few).tolist()
