"""Stretches of prompts that are read in both directions: each in one run, whatever stands beside and before it."""

import asyncio
from functools import partial

import pytest
from tiny_sight import MAX_TOKENS

from loaded import ask
from pictured_chats import DECODING, PICTURES, answer, chat, run
from weft_proto.v1 import bundle_pb2, common_pb2
from weft_server.bundle.load import load_bundle
from weft_server.config import read_config
from weft_server.loading.memory_check import memory_need_of

NAMES = ["tiny-gemma3", "tiny-paligemma"]
SAID = " and tell what is there, at some length"
CHATS = [
    chat(("look", PICTURES[0], SAID)),
    chat(("look", PICTURES[0], "or here", PICTURES[1])),
    chat((PICTURES[2], PICTURES[1])),
    chat(("hello there",)),
    chat((SAID, PICTURES[0])),
]


@pytest.mark.parametrize("name", [*NAMES, "tiny-gemma3-int8"])
def test_a_prompt_with_stretches_has_the_same_answer_in_any_company(name, tiny_repository, tiny_bundle):
    """Alone, beside others that stream or wait, in pieces as small as there are: the same tokens."""
    repository = tiny_bundle(name).parent.parent

    async def alone(model):
        return [await answer(model, each) for each in CHATS]

    async def together(model):
        watched = asyncio.create_task(ask(model, messages=CHATS[0], decoding=DECODING))
        found = await asyncio.gather(*(answer(model, each) for each in [*CHATS, *CHATS]))
        await watched
        return list(found)

    expected = run(repository, name, alone)
    assert len(CHATS) == len({tuple(tokens) for tokens, _ in expected})
    assert [*expected, *expected] == run(repository, name, together, slots=3, prefill_budget=8)


@pytest.mark.parametrize("name", NAMES)
def test_a_stretch_is_one_run_and_text_is_read_around_it(name, tiny_repository):
    """Of a Gemma 3 a picture's places and no others; of a PaliGemma all of a prompt."""

    async def use(model):
        lane = model.engine.lanes[0]
        runs = []
        for reader, method in ((lane.stretches, "read"), (lane.runner, "prefill")):
            noted = partial(note, getattr(reader, method), runs, is_stretch=method == "read")
            setattr(reader, method, noted)
        counts = []
        for each in CHATS:
            runs.clear()
            _, length = await answer(model, each)
            counts.append((length, list(runs)))
        return counts

    def note(read, runs, slot, token_ids, beside, *, is_stretch):
        runs.append((is_stretch, len(token_ids)))
        return read(slot, token_ids, beside)

    found = run(tiny_repository, name, use)
    assert all(length == sum(size for _, size in runs) for length, runs in found)
    stretches = [[size for is_stretch, size in runs if is_stretch] for _, runs in found]
    if name == "tiny-paligemma":
        assert [[length] for length, _ in found] == stretches
        return
    assert [[9], [9, 9], [9, 9], [], [9]] == stretches


def test_a_conversation_about_a_picture_reads_what_is_new(tiny_repository):
    """Pieces are kept that end behind the picture; one that ends within it is of no use."""
    first = ("look", PICTURES[0], SAID)
    within = chat(("look, all of you, at this", PICTURES[0], "?"))

    async def use(model):
        found = []
        for each in (chat(first), chat(first), chat(first, ("and now",)), within, within, within):
            completion = (await ask(model, messages=each, decoding=DECODING)).completion
            found.append((list(completion.token_ids), completion.usage.cached_tokens))
        return found

    plain = run(tiny_repository, "tiny-gemma3", use)
    kept = run(tiny_repository, "tiny-gemma3", use, prefix_cache_mb=8)
    assert [each for each, _ in plain] == [each for each, _ in kept]
    assert [0, 0, 32, 0, 0, 0] == [count for _, count in kept]


def test_what_is_kept_of_one_picture_is_not_another_s(tiny_repository):
    """Two prompts that differ in the picture alone, again and again, with the prefix cache."""
    asked = [chat(("look", each, SAID)) for each in PICTURES]

    async def use(model):
        return [await answer(model, each) for each in [*asked, *asked, *asked]]

    found = run(tiny_repository, "tiny-gemma3", use, prefix_cache_mb=8)
    assert found[:3] * 3 == found
    assert 3 == len({tuple(tokens) for tokens, _ in found})


def test_a_prompt_read_both_ways_keeps_nothing(tiny_repository):
    """Its first tokens are other ones where it goes on otherwise."""

    async def use(model):
        asked = [*CHATS[:2]] * 3
        found = [(await ask(model, messages=each, decoding=DECODING)).completion for each in asked]
        return [list(each.token_ids) for each in found], sum(each.usage.cached_tokens for each in found)

    tokens, num_cached = run(tiny_repository, "tiny-paligemma", use, prefix_cache_mb=8)
    assert (tokens[:2] * 3, 0) == (tokens, num_cached)


@pytest.mark.parametrize("name", NAMES)
def test_the_longest_prompt_is_answered(name, tiny_repository):
    """One token is left; a token more is refused."""

    async def use(model):
        _, bare = await answer(model, chat((PICTURES[0],)))
        decoding = common_pb2.Decoding(max_new_tokens=1, greedy={})
        whole = chat((PICTURES[0], "z" * (MAX_TOKENS - 1 - bare)))
        found = await ask(model, messages=whole, decoding=decoding)
        return found.completion.usage.input_tokens

    assert run(tiny_repository, name, use) in (MAX_TOKENS - 1, MAX_TOKENS - 2)


@pytest.mark.parametrize("name", NAMES)
def test_beams_go_on_behind_a_stretch(name, tiny_repository):
    """Alone and in company they are the same."""
    decoding = common_pb2.Decoding(max_new_tokens=10, beams={"num_beams": 3})

    async def use(model, several):
        asked = [ask(model, messages=each, decoding=decoding) for each in CHATS[:3]]
        found = await asyncio.gather(*asked) if several else [await each for each in asked]
        return [list(each.completion.token_ids) for each in found]

    alone = run(tiny_repository, name, lambda model: use(model, several=False), slots=3)
    assert alone == run(tiny_repository, name, lambda model: use(model, several=True), slots=9)


@pytest.mark.parametrize(("name", "longest"), [("tiny-gemma3", 9), ("tiny-paligemma", MAX_TOKENS - 1)])
def test_scores_of_a_stretch_take_memory(name, longest, tiny_repository):
    """Of each lane: all pairs of its places with those of a context, in two heads."""
    bundle = load_bundle(tiny_repository / name / "1")
    config = read_config(repository=tiny_repository.folder, slots=5, lanes=3)
    full = memory_need_of(bundle, config).full
    bundle.manifest.text.bidirectional = bundle_pb2.BIDIRECTIONAL_UNSPECIFIED
    assert 3 * 2 * longest * MAX_TOKENS * 4 == full - memory_need_of(bundle, config).full
