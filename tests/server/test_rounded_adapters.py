"""Adapters beside rounded weights keep the laws of adapters: a row has the same bits in any company, or the base's."""

import asyncio

import numpy as np
import pytest
from tiny import CHECKPOINTS, save_tiny
from tiny_adapters import linear_shapes, write_adapter

from loaded import Loaded, answering
from weft_export.adapters.export_adapter import export_adapter
from weft_export.export import export_checkpoint
from weft_export.options import ExportOptions
from weft_proto.v1 import common_pb2, generation_pb2
from weft_server.models.request_context import REQUEST_CONTEXT, RequestContext

PROMPTS = ("the big dog eats", "the cat", "a dog finds the red house", "the dog")
NAMES = ("formal", "short")


async def answer(model, prompt, adapter):
    """The ids of an answer, and the bits of their log-probabilities."""
    call = RequestContext("Generate")
    REQUEST_CONTEXT.set(call)
    selector = common_pb2.ModelSelector(name=model.name, adapter=adapter)
    decoding = common_pb2.Decoding(min_new_tokens=8, max_new_tokens=16)
    request = generation_pb2.GenerateRequest(model=selector, text=prompt, return_scores=True, decoding=decoding)
    try:
        done = (await answering(model)["Generate"](request, None)).completion
    finally:
        call.let_go()
    return list(done.token_ids), np.array(done.token_log_probs, np.float32).tobytes()


@pytest.mark.parametrize(
    "precision", [pytest.param(each, marks=pytest.mark.long) for each in ("int8", "int8-weights", "int4")] + ["nf4"]
)
def test_a_row_has_the_bits_that_it_has_alone_or_those_of_the_base(tmp_path, precision):
    """With an adapter those that it has alone, in any mix. Without one, those of a bundle that takes none."""
    checkpoint = save_tiny("tiny-generate", tmp_path / "checkpoint")
    plain, adapted = (tmp_path / "models" / name / "1" for name in ("plain", "adapted"))
    small = {"precision": precision, "no_explain": True, "no_score": True}
    export_checkpoint(checkpoint, plain, ExportOptions(**small))
    export_checkpoint(checkpoint, adapted, ExportOptions(**small, adapters=3))
    model = CHECKPOINTS["tiny-generate"]().model
    shapes = linear_shapes(model, "qkv", "output", "gate_proj", "up_proj", "down_proj")
    for seed, (name, rank) in enumerate(zip(NAMES, (3, 1), strict=True)):
        made = write_adapter(tmp_path / name, shapes, rank=rank, seed=seed)
        export_adapter(made, adapted, checkpoint)

    async def run():
        async with Loaded(plain, slots=4, lanes=1) as base:
            expected = [await answer(base, prompt, "") for prompt in PROMPTS]
        async with Loaded(adapted, slots=8, lanes=1) as served:
            asks = [(prompt, name) for name in ("", *NAMES) for prompt in PROMPTS]
            alone = [await answer(served, *ask) for ask in asks]
            assert alone == await asyncio.gather(*(answer(served, *ask) for ask in asks))
            assert expected == alone[: len(PROMPTS)]
            assert 1 + len(NAMES) == len({str(alone[index][0]) for index in range(0, len(asks), len(PROMPTS))})

    asyncio.run(run())
