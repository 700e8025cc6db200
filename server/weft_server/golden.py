"""Asks a freshly loaded model its golden request, on the same path as any caller's, and compares the answer."""

from __future__ import annotations

from contextlib import aclosing
from typing import TYPE_CHECKING

import numpy as np

from weft_proto.v1 import bundle_pb2, common_pb2
from weft_server.call import Call
from weft_server.completion import Completed, complete, submitted
from weft_server.decoding import resolve_decoding
from weft_server.errors import BundleError

if TYPE_CHECKING:
    from weft_server.completion import Read
    from weft_server.model import Model

_TOLERANCE = {bundle_pb2.PRECISION_FP32: 1e-3, bundle_pb2.PRECISION_FP16: 1e-2}


async def verify_golden(model: Model) -> None:
    """Raise BundleError unless the model gives the golden answer, explains it if it can, and has sane defaults."""
    golden = model.manifest.golden
    if golden.probabilities:
        await _verify_probabilities(model, golden)
    else:
        await _verify_tokens(model, golden)


async def _verify_tokens(model: Model, golden: bundle_pb2.Golden) -> None:
    expected = list(golden.token_ids)
    decoding = common_pb2.Decoding(max_new_tokens=len(expected), greedy=common_pb2.Greedy())
    resolve_decoding(common_pb2.Decoding(), model.manifest, 1)
    async with aclosing(complete(_call(), model, _reader(model, golden), decoding)) as events:
        answer = await anext(events)
    assert isinstance(answer, Completed)
    if answer.token_ids != expected:
        raise BundleError(f"the golden answer differs: {answer.token_ids} instead of {expected}")
    await _verify_explanation(model, answer.sequence.inputs, answer.token_ids, len(answer.token_ids))


async def _verify_probabilities(model: Model, golden: bundle_pb2.Golden) -> None:
    async with submitted(_call(), model, _reader(model, golden), lambda _: None) as sequence:
        await sequence.reply.done()
        actual = sequence.reply.probabilities
    assert actual is not None
    # A tagger's are [tokens, labels].
    expected = np.array(golden.probabilities, np.float32).reshape(-1, len(model.manifest.labels))
    tolerance = _TOLERANCE[model.manifest.precision]
    rows = actual.reshape(-1, len(model.manifest.labels))
    if rows.shape != expected.shape or np.abs(rows - expected).max() > tolerance:
        raise BundleError(f"the golden answer differs by more than {tolerance:g}: {actual} instead of {expected}")
    await _verify_explanation(model, sequence.inputs, [], len(rows))


async def _verify_explanation(model: Model, inputs: np.ndarray, token_ids: list[int], num_rows: int) -> None:
    if model.explainer is None:
        return
    explainer, source = model.explainer, model.reader.num_tokens(inputs)
    reading = explainer.resolve(common_pb2.Explain())
    weights, source_mass = await explainer.work(lambda: explainer.explain(inputs, token_ids, reading))
    if weights.shape != (num_rows, source) or source_mass.shape != (num_rows,):
        raise BundleError(f"the golden answer is explained by {weights.shape} weights, not {(num_rows, source)}")
    if not np.abs(weights.sum(axis=1) - 1).max() <= _TOLERANCE[model.manifest.precision]:
        raise BundleError("the golden answer is explained by rows that do not sum to 1")


def _call() -> Call:
    return Call("golden", request_id="golden")


def _reader(model: Model, golden: bundle_pb2.Golden) -> Read:
    if golden.WhichOneof("input") == "text":
        return lambda: model.reader.read_text(golden.text, "golden.text")
    data = model.bundle.path(golden.image_path).read_bytes()
    return lambda: model.reader.read_image(common_pb2.Image(data=data))
