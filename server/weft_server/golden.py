"""Asks a freshly loaded model its golden request, on the same path as any caller's, and compares the answer."""

from __future__ import annotations

from contextlib import aclosing
from typing import TYPE_CHECKING

import numpy as np

from weft_proto.bundle_rules import EXPLAIN_SUM_TOLERANCE, GOLDEN_TOLERANCE, READS_ALL
from weft_proto.v1 import bundle_pb2, common_pb2
from weft_server.call import Call
from weft_server.completion import Completed, classify, complete
from weft_server.decoding import resolve_decoding
from weft_server.errors import BundleError, InvalidRequest
from weft_server.explainer import Explanation, Reading

if TYPE_CHECKING:
    from weft_server.completion import Read
    from weft_server.model import Model
    from weft_server.source import Source

# A mass is what a softmax in the bundle's own precision summed to.
_MASS_TOLERANCE = {
    bundle_pb2.PRECISION_FP32: 1e-5,
    bundle_pb2.PRECISION_FP16: 1e-2,
    bundle_pb2.PRECISION_BF16: 3e-2,
    bundle_pb2.PRECISION_INT8: 1e-5,
}
_AVERAGE_TOLERANCE = 1e-4


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
    _verify_default(model.manifest)
    # A graph that can leave out what only scores need is tried both ways.
    decoder = model.bundle.graph(bundle_pb2.GRAPH_ROLE_DECODER)
    assert decoder is not None, "a bundle without its decoder was accepted. This is a bug."
    asks = any(port.name == READS_ALL for port in decoder.inputs)
    for scores in (False, True) if asks else (False,):
        async with aclosing(complete(_call(), model, _reader(model, golden), decoding, scores=scores)) as events:
            answer = await anext(events)
        assert isinstance(answer, Completed)
        if answer.token_ids != expected:
            which = "golden answer with scores" if scores else "golden answer"
            raise BundleError(f"the {which} differs: {answer.token_ids} instead of {expected}")
        sequence = answer.sequence
    await _verify_explanation(model, sequence.source, expected, len(expected))


def _verify_default(manifest: bundle_pb2.BundleManifest) -> None:
    """What a request gets that asks for nothing is what a request may ask for."""
    try:
        resolve_decoding(common_pb2.Decoding(), manifest, 1)
    except InvalidRequest as error:
        raise BundleError(error.message) from error


async def _verify_probabilities(model: Model, golden: bundle_pb2.Golden) -> None:
    sequence, _, actual = await classify(_call(), model, _reader(model, golden))
    # A tagger's are [tokens, labels].
    expected = np.array(golden.probabilities, np.float32).reshape(-1, len(model.manifest.labels))
    tolerance = GOLDEN_TOLERANCE[model.manifest.precision]
    rows = actual.reshape(-1, len(model.manifest.labels))
    if rows.shape != expected.shape or not np.abs(rows - expected).max() <= tolerance:  # said this way round, NaN fails
        raise BundleError(f"the golden answer differs by more than {tolerance:g}: {actual} instead of {expected}")
    await _verify_explanation(model, sequence.source, [], len(rows))


async def _verify_explanation(model: Model, source: Source, token_ids: list[int], num_rows: int) -> None:
    explainer, attention = model.explainer, model.manifest.attention
    if explainer is None:
        return
    shape, summarises = (num_rows, source.num_tokens), not attention.HasField("default_layer")

    def read(layer: int | None, head: int | None = None) -> Explanation:
        explanation = explainer.explain(source, token_ids, Reading(layer, head))
        _verify_rows(explanation, shape, _MASS_TOLERANCE[model.manifest.precision])
        return explanation

    def verify() -> None:
        read(None if summarises else attention.default_layer)
        last = len(attention.heads) - 1
        ends = {layer: read(layer) for layer in (0, last)}
        for layer, num_heads in enumerate(attention.heads):
            # A graph has nothing to show for a head that it does not have.
            if not read(layer, num_heads - 1).source_mass.any():
                raise BundleError(f"attention.heads: layer {layer} has no head {num_heads - 1}")
        for layer, explanation in ends.items():
            _verify_heads(layer, explanation, [read(layer, head) for head in range(attention.heads[layer])])
        # A graph falls back on something when it is asked for a layer or a summary that it does not have.
        if last > 0 and _are_one(ends[0], ends[last]):
            raise BundleError(f"attention.heads: layer {last} is layer 0 again")
        if last > 0 and summarises and _are_one(read(None), ends[0]):
            raise BundleError("attention.default_layer is unset, and the graph's summary is layer 0 again")
        if last > 0 and summarises and _are_one(read(None), ends[last]):
            raise BundleError(f"attention.heads: layer {last} is the graph's summary again")

    await explainer.work(verify)


def _verify_rows(explanation: Explanation, shape: tuple[int, int], tolerance: float) -> None:
    weights, mass = explanation
    if weights.shape != shape or mass.shape != shape[:1]:
        raise BundleError(f"the golden answer is explained by {weights.shape} weights, not {shape}")
    sums = np.abs(weights.sum(axis=1, dtype=np.float64) - 1)
    if not (sums.max() <= EXPLAIN_SUM_TOLERANCE and weights.min() >= 0):
        raise BundleError("the golden answer is explained by rows that are no distributions")
    if not (mass.min() >= -tolerance and mass.max() <= 1 + tolerance):
        raise BundleError("the golden answer is explained with a mass outside [0, 1]")


def _verify_heads(layer: int, whole: Explanation, heads: list[Explanation]) -> None:
    """A layer's attention to the source is the average of its heads', or the graph has others than the manifest."""
    average = np.mean([weights * mass[:, None] for weights, mass in heads], axis=0)
    if np.abs(average - whole.weights * whole.source_mass[:, None]).max() > _AVERAGE_TOLERANCE:
        raise BundleError(f"attention.heads: layer {layer} is not the average of {len(heads)} heads")


def _are_one(first: Explanation, second: Explanation) -> bool:
    """Whether two readings are the same bits, and not by chance, as uniform rows are or those with all on one place."""
    inner = [np.log(row[row > 1e-6]).round(2) for row in first.weights]
    return np.array_equal(first.weights, second.weights) and any(len(np.unique(row)) > 1 for row in inner)


def _call() -> Call:
    return Call("golden", request_id="golden")


def _reader(model: Model, golden: bundle_pb2.Golden) -> Read:
    if golden.WhichOneof("input") == "text":
        return lambda _: model.reader.read_text(golden.text, "golden.text")
    data = model.bundle.path(golden.image_path).read_bytes()
    return lambda wanted: model.reader.read_image(common_pb2.Image(data=data), wanted)
