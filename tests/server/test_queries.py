"""Pictures of prompts that queries read: the same answer in any company, and no place of one lies anywhere on it."""

import asyncio

import pytest
from tiny_sight import NUM_QUERIES

from loaded import ask
from pictured_chats import DECODING, PICTURES, answer, chat, run
from weft_proto.v1 import common_pb2

SAID = " and tell what is there, at some length"
CHATS = [
    chat(("look", PICTURES[0], SAID)),
    chat((PICTURES[1], "look", PICTURES[2])),
    chat(("hello there",)),
    chat((PICTURES[2],)),
]


@pytest.mark.parametrize("name", ["tiny-queries", "tiny-queries-int8"])
def test_a_prompt_with_queries_has_the_same_answer_in_any_company(name, tiny_bundle):
    """Alone, beside others, in pieces as small as there are, with and without what is kept: the same tokens."""
    repository = tiny_bundle(name).parent.parent

    async def alone(model):
        return [await answer(model, each) for each in CHATS]

    async def together(model):
        return list(await asyncio.gather(*(answer(model, each) for each in [*CHATS, *CHATS])))

    expected = run(repository, name, alone)
    assert len(CHATS) == len({tuple(tokens) for tokens, _ in expected})
    crowded = run(repository, name, together, slots=6, lanes=2, prefill_budget=8, prefix_cache_mb=8)
    assert [*expected, *expected] == crowded


def test_no_place_of_a_picture_lies_on_it(tiny_repository):
    """All columns are told, and no grid: each query has read the whole picture."""

    async def use(model):
        asked = chat(("look", PICTURES[0], "there"))
        return (await ask(model, messages=asked, decoding=DECODING, explain=common_pb2.Explain())).alignment

    told = run(tiny_repository, "tiny-queries", use)
    assert list(told.source_tokens).count("<image>") == NUM_QUERIES
    assert [] == list(told.pictures)
    assert (0, 0) == (told.grid_rows, told.grid_columns)
    assert len(told.weights) == len(told.source_tokens) * len(told.target_tokens)
