"""A graph that explains has the layers and heads that its manifest says, or its bundle is refused."""

import asyncio
from types import SimpleNamespace

import numpy as np
import pytest

from weft_proto.v1 import bundle_pb2
from weft_server.errors import BundleError
from weft_server.loading.explain_check import verify_explanation
from weft_server.models.explainer import Explanation, Heat

ROWS, PLACES = 2, 3


def _rows(*weights):
    return np.tile(np.array(weights, np.float32), (ROWS, 1))


class Graph:
    """Two layers of two heads, and a summary of them. What `wrong` names is given in the place of something else.

    With `asked` it is what lay on a question, and all is right with the source.
    """

    def __init__(self, wrong, *, asked=False):
        self._heads = {(0, 0): _rows(0.5, 0.3, 0.2), (0, 1): _rows(0.1, 0.1, 0.8)}
        self._heads |= {(1, 0): _rows(0.25, 0.7, 0.05), (1, 1): _rows(0.6, 0.2, 0.2)}
        layers = {(layer, None): (self._heads[layer, 0] + self._heads[layer, 1]) / 2 for layer in (0, 1)}
        self._all = self._heads | layers | {(None, None): _rows(0.3, 0.4, 0.3)}
        self._all |= {place: self._all[other] for place, other in wrong.items() if other}
        self._missing = [place for place, other in wrong.items() if not other]
        self._right = Graph({}) if asked else None

    def explain(self, source, token_ids, choice, prefix_ids):
        """As an Explainer's."""
        place = tuple(choice)
        heat = Heat(self._all[place], np.full(ROWS, float(place not in self._missing), np.float32))
        if self._right is None:
            return Explanation(*heat)
        return self._right.explain(source, token_ids, choice, prefix_ids)._replace(question=heat)

    async def work(self, job):
        """As an Explainer's."""
        return job()


def verify(wrong, default_layer=None, *, asked=False):
    """Hold a graph to a manifest of two layers with two heads each."""
    manifest = bundle_pb2.BundleManifest(precision=bundle_pb2.PRECISION_FP32)
    manifest.attention.heads.extend([2, 2])
    if default_layer is not None:
        manifest.attention.default_layer = default_layer
    model = SimpleNamespace(explainer=Graph(wrong, asked=asked), manifest=manifest)
    source = SimpleNamespace(num_shown=PLACES, explained_ids=(5,) * PLACES)
    asyncio.run(verify_explanation(model, source, [], ROWS))


def test_a_graph_as_its_manifest_says_is_taken():
    """With a summary of its layers, or a layer that is shown by default."""
    verify({})
    verify({}, default_layer=1)


@pytest.mark.parametrize(
    ("wrong", "why"),
    [
        ({(1, None): (0, None), (1, 0): (0, 0), (1, 1): (0, 1)}, "attention.heads: layer 1 is layer 0 again"),
        ({(None, None): (0, None)}, "default_layer is unset, and the graph's summary is layer 0 again"),
        ({(None, None): (1, None)}, "attention.heads: layer 1 is the graph's summary again"),
        ({(1, 1): None}, "attention.heads: layer 1 has no head 1"),
        ({(0, 0): (0, 1)}, "attention.heads: layer 0 is not the average of 2 heads"),
    ],
)
def test_another_layer_head_or_summary_is_refused(wrong, why):
    """A graph that has none of what it is asked for gives something else."""
    with pytest.raises(BundleError, match=why):
        verify(wrong)


@pytest.mark.parametrize(
    ("wrong", "why"),
    [
        ({(1, None): (0, None), (1, 0): (0, 0), (1, 1): (0, 1)}, "attention.heads: layer 1 is layer 0 again"),
        ({(0, 0): (0, 1)}, "attention.heads: layer 0 is not the average of 2 heads"),
    ],
)
def test_another_layer_or_head_is_refused_of_a_question_alone(wrong, why):
    """What lay on the source is right, and what lay on a question is not."""
    verify({}, asked=True)
    with pytest.raises(BundleError, match=why):
        verify(wrong, asked=True)
