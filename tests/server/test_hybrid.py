"""Models whose layers keep a state beside a cache: what a neighbour left, what was cancelled, what a prefix keeps."""

import asyncio

import numpy as np
import pytest

from loaded import Loaded, ask
from weft_proto.v1 import common_pb2
from weft_server.engine.prefill_chunks import PREFILL_BUCKETS, reads_one_by_one
from weft_server.engine.prefix_reader import PIECE

NAMES = ["tiny-hybrid", "tiny-hybrid-int8", "tiny-state-space", "tiny-state-space-int8", "tiny-mamba"]
NAMES += ["tiny-selective", "tiny-selective-int8", "tiny-rwkv", "tiny-rwkv-int8"]


def ids_of(seed, length):
    """A random prompt."""
    ids = np.random.default_rng(seed).integers(3, 300, length).tolist()
    return {"token_ids": common_pb2.TokenIds(ids=ids), "return_scores": True, "num_top_tokens": 5}


def told(answer):
    """All that an answer says of its tokens."""
    found = answer.completion
    tops = [(list(top.token_ids), list(top.log_probs)) for top in found.top_tokens]
    return list(found.token_ids), list(found.token_log_probs), tops


def wanted(num_new=8, **more):
    """So many tokens, whatever they are."""
    return common_pb2.Decoding(max_new_tokens=num_new, min_new_tokens=num_new, **more)


@pytest.mark.parametrize("name", NAMES)
def test_a_slot_begins_anew(name, tiny_bundle):
    """After another's answer, after one that went while its prompt was read, and after one that went while it wrote."""

    async def run():
        async with Loaded(tiny_bundle(name), slots=1, lanes=1) as model:
            first = told(await ask(model, **ids_of(0, 20), decoding=wanted()))
            await ask(model, **ids_of(1, 40), decoding=wanted(20))
            found = [told(await ask(model, **ids_of(0, 20), decoding=wanted()))]
            for seconds in (0.0, 0.001, 0.003, 0.01, 0.02):
                other = asyncio.create_task(ask(model, **ids_of(2, 40), decoding=wanted(20)))
                await asyncio.sleep(seconds)
                other.cancel()
                found.append(told(await ask(model, **ids_of(0, 20), decoding=wanted())))
            return first, found

    first, found = asyncio.run(run())
    assert [first] * len(found) == found


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("lanes", [1, 2])
def test_neighbours_do_not_show(name, lanes, tiny_bundle):
    """Prompts of all lengths that come and go together, some of them cancelled: each has the bits that it has alone."""
    asked = [(seed, length) for seed, length in enumerate((1, 33, 7, 40, 2, 16, 31, 9, 25, 8))]

    async def run(*, crowd):
        async with Loaded(tiny_bundle(name), slots=4, lanes=lanes) as model:

            async def one(seed, length):
                return told(await ask(model, **ids_of(seed, length), decoding=wanted(4 + seed)))

            if not crowd:
                return [await one(*each) for each in asked]
            gone = [asyncio.create_task(one(100 + seed, 30)) for seed in range(4)]
            tasks = [asyncio.create_task(one(*each)) for each in asked]
            await asyncio.sleep(0.005)
            for each in gone:
                each.cancel()
            return await asyncio.gather(*tasks)

    alone, crowded = (asyncio.run(run(crowd=crowd)) for crowd in (False, True))
    assert alone == crowded


def test_prompts_are_cut_between_blocks():
    """A state space reads blocks of tokens from where a run begins, so each run but a prompt's last has whole ones."""
    assert {0} == {size % 8 for size in (*PREFILL_BUCKETS, PIECE)}


@pytest.mark.parametrize("name", NAMES)
def test_a_kept_prefix_has_the_state_of_its_end(name, tiny_bundle):
    """A second prompt is kept up to the end of a piece, and others go on from there: all have the bits of cold ones."""
    shared = np.random.default_rng(3).integers(3, 300, PIECE + 9).tolist()
    prompts = [[*shared, *rest] for rest in ([5, 6], [5, 6], [7], [8, 9, 10])]

    async def run(**settings):
        async with Loaded(tiny_bundle(name), slots=2, lanes=1, **settings) as model:
            found = []
            for prompt in prompts:
                request = {"token_ids": common_pb2.TokenIds(ids=prompt), "return_scores": True}
                answer = await ask(model, **request, decoding=wanted())
                found.append((told(answer), answer.completion.usage.cached_tokens))
            return found

    cold, warm = asyncio.run(run()), asyncio.run(run(prefix_cache_mb=4))
    assert [answer for answer, _ in cold] == [answer for answer, _ in warm]
    assert [0, 0, PIECE, PIECE] == [num_cached for _, num_cached in warm]


def test_a_state_does_not_go_back_so_nothing_is_drafted(tiny_bundle):
    """Speculation is off for them: an answer that repeats itself has no drafts, and a run reads pieces all the same."""

    async def run():
        async with Loaded(tiny_bundle("tiny-hybrid-int8"), slots=1, lanes=1, num_speculative_tokens=4) as model:
            await ask(model, token_ids=common_pb2.TokenIds(ids=[5, 6, 7] * 6), decoding=wanted(12))
            return model.metrics.draft_tokens.value, reads_one_by_one(model.manifest)

    assert (0, False) == asyncio.run(run())
