"""A model that leaves gives its memory back at once: the garbage collector comes late, or not at all."""

import asyncio
import gc

import pytest
from onnxruntime import InferenceSession

from loaded import Loaded, ask, golden_request, score
from weft_proto.v1 import common_pb2

BEAMS = common_pb2.Decoding(max_new_tokens=4, beams=common_pb2.Beams(num_beams=2))
WRITERS = ("tiny-translate", "tiny-caption", "tiny-speech", "tiny-generate")


def num_sessions():
    """Sessions in memory."""
    return sum(type(each) is InferenceSession for each in gc.get_objects())


async def work(model, name):
    """One call of each kind that the task has."""
    await ask(model, **golden_request(model))
    await ask(model, **golden_request(model, explain=common_pb2.Explain()))
    if name in WRITERS:
        await ask(model, **golden_request(model, decoding=BEAMS))
    if name in {"tiny-translate", "tiny-generate"}:
        await score(model, **golden_request(model, target_text="a"))


@pytest.mark.parametrize("name", [*WRITERS, "tiny-text", "tiny-image", "tiny-tags", "tiny-extract", "tiny-masks"])
def test_a_model_that_leaves_takes_its_sessions_along(tiny_repository, name):
    """Of a model that was loaded, asked and stopped, no session is left, with the garbage collector off."""

    async def run():
        before = num_sessions()
        async with Loaded(tiny_repository / name / "1", slots=4, prefix_cache_mb=1) as model:
            await work(model, name)
            during = num_sessions()
        return before, during

    gc.collect()
    gc.disable()
    try:
        before, during = asyncio.run(run())
        assert during > before
        assert before == num_sessions()
    finally:
        gc.enable()
