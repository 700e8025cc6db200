"""Tries a model's EXPLAIN graph with an answer: rows must be distributions, of the manifest's layers and heads."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from weft_proto.bundle_rules import EXPLAIN_SUM_TOLERANCE, HOST_PRECISIONS
from weft_proto.v1 import bundle_pb2
from weft_server.errors import BundleError
from weft_server.models.explainer import AttentionChoice, Explanation, Heat

if TYPE_CHECKING:
    from weft_server.models.model import Model
    from weft_server.source import Source

# A mass is what a softmax in the bundle's own precision summed to.
_MASS_TOLERANCE = {
    **dict.fromkeys(HOST_PRECISIONS, 1e-5),
    bundle_pb2.PRECISION_FP16: 1e-2,
    bundle_pb2.PRECISION_INT4_FP16: 1e-2,
    bundle_pb2.PRECISION_BF16: 3e-2,
}
_AVERAGE_TOLERANCE = 1e-4
# Each reading runs the whole graph. So of a large model some layers are read, and heads are not averaged.
_MAX_WEIGHTS_READ = 1 << 35
_FEWEST_READINGS = 24


async def verify_explanation(
    model: Model, source: Source, token_ids: list[int], num_rows: int, prefix_ids: tuple[int, ...] = ()
) -> None:
    """Raise BundleError unless a model that can explain its answers explains this one.

    The answer is `token_ids` behind `prefix_ids`, or `num_rows` labels. The graph's layers and heads must be those of
    the manifest.
    """
    explainer = model.explainer
    attention = model.manifest.attention
    if explainer is None:
        return
    shapes = (num_rows, source.num_shown), (num_rows, len(source.explained_ids))
    summarises = not attention.HasField("default_layer")
    most = max(_FEWEST_READINGS, _MAX_WEIGHTS_READ // max(1, model.manifest.provenance.num_parameters)) // 3

    def read(layer: int | None, head: int | None = None) -> Explanation:
        explanation = explainer.explain(source, token_ids, AttentionChoice(layer, head), prefix_ids)
        _verify_rows(explanation, shapes, _MASS_TOLERANCE[model.manifest.precision])
        return explanation

    def verify() -> None:
        read(None if summarises else attention.default_layer)
        last = len(attention.heads) - 1
        ends = {layer: read(layer) for layer in (0, last)}
        for layer in _spread(len(attention.heads), most):
            num_heads = attention.heads[layer]
            # A graph has nothing to show for a head that it does not have.
            if not read(layer, num_heads - 1).source_mass.any():
                raise BundleError(f"attention.heads: layer {layer} has no head {num_heads - 1}")
        for layer in [layer for layer in ends if attention.heads[layer] <= most]:
            _verify_heads(layer, ends[layer], [read(layer, head) for head in range(attention.heads[layer])])
        # If a graph is asked for a layer or a summary that it does not have, it gives something else.
        if last > 0 and _are_one(ends[0], ends[last]):
            raise BundleError(f"attention.heads: layer {last} is layer 0 again")
        if last > 0 and summarises and _are_one(read(None), ends[0]):
            raise BundleError("attention.default_layer is unset, and the graph's summary is layer 0 again")
        if last > 0 and summarises and _are_one(read(None), ends[last]):
            raise BundleError(f"attention.heads: layer {last} is the graph's summary again")

    await explainer.work(verify)


def _spread(num_layers: int, most: int) -> list[int]:
    """Return all layers, or so many of them from the first to the last."""
    num = min(num_layers, most)
    return sorted({round(index * (num_layers - 1) / max(1, num - 1)) for index in range(num)})


def _heats_of(explanation: Explanation) -> list[Heat]:
    """Return what lay on the source, and then on a question, if the graph tells."""
    own = Heat(explanation.weights, explanation.source_mass)
    return [own] if explanation.question is None else [own, explanation.question]


def _verify_rows(explanation: Explanation, shapes: tuple[tuple[int, int], ...], tolerance: float) -> None:
    for (weights, mass), shape in zip(_heats_of(explanation), shapes, strict=False):
        if weights.shape != shape or mass.shape != shape[:1]:
            raise BundleError(f"the golden answer is explained by {weights.shape} weights, not {shape}")
        sums = np.abs(weights.sum(axis=1, dtype=np.float64) - 1)
        if not (sums.max() <= EXPLAIN_SUM_TOLERANCE and weights.min() >= 0):
            raise BundleError("the golden answer is explained by rows that are no distributions")
        if not (mass.min() >= -tolerance and mass.max() <= 1 + tolerance):
            raise BundleError("the golden answer is explained with a mass outside [0, 1]")


def _verify_heads(layer: int, whole: Explanation, heads: list[Explanation]) -> None:
    """Refuse a graph whose layer is not the average of the heads that the manifest says."""
    for average, *parts in zip(*map(_heats_of, (whole, *heads)), strict=True):
        mean = np.mean([weights * mass[:, None] for weights, mass in parts], axis=0)
        if np.abs(mean - average.weights * average.mass[:, None]).max() > _AVERAGE_TOLERANCE:
            raise BundleError(f"attention.heads: layer {layer} is not the average of {len(heads)} heads")


def _are_one(first: Explanation, second: Explanation) -> bool:
    """Whether two readings have the same bits, and not by chance.

    Uniform rows are alike by chance. So are rows with all their weight on one place.
    """
    return any(map(_are_equal, _heats_of(first), _heats_of(second)))


def _are_equal(first: Heat, second: Heat) -> bool:
    inner = [np.log(row[row > 1e-6]).round(2) for row in first.weights]
    return np.array_equal(first.weights, second.weights) and any(len(np.unique(row)) > 1 for row in inner)
