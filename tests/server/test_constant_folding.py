"""Which graphs cost much to open: known before they are opened."""

import numpy as np
import pytest
from onnx import TensorProto, helper, numpy_helper

from drafts import classify_text
from weft_server.bundle.constant_folding import MAX_PARTS, is_costly_to_open
from weft_server.bundle.load import load_bundle
from weft_server.errors import BundleError


def _graph(nodes, weights=(), outputs=()):
    """A graph of nodes over weights, each filled with zeros, and an input `x`."""
    filled = [numpy_helper.from_array(np.zeros(shape, np.float32), name) for name, shape in weights]
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, [1])
    given = [helper.make_tensor_value_info(name, TensorProto.FLOAT, None) for name in outputs]
    return helper.make_graph(nodes, "g", [x], given, filled)


def _sparse():
    graph = _graph([helper.make_node("Exp", ["x"], ["y"])])
    values = helper.make_tensor("s", TensorProto.FLOAT, [1], [1.0])
    places = helper.make_tensor("p", TensorProto.INT64, [1], [0])
    graph.sparse_initializer.append(helper.make_sparse_tensor(values, places, [1 << 40]))
    return graph


def _choice(condition):
    body = _graph([helper.make_node("Exp", ["x"], ["y"])], outputs=["y"])
    del body.input[:]
    node = helper.make_node("If", [condition], ["y"], then_branch=body, else_branch=body)
    return _graph([node], [("c", [1])])


_EXP = helper.make_node("Exp", ["w"], ["e"])
_BODY = _graph([_EXP, helper.make_node("Add", ["x", "e"], ["y"])], outputs=["y"])
del _BODY.input[:]
COSTLY = {
    "a function of weights": _graph([_EXP], [("w", [2])]),
    "in a branch": _graph([helper.make_node("If", ["x"], ["y"], then_branch=_BODY, else_branch=_BODY)], [("w", [2])]),
    "a tensor of any size": _graph([helper.make_node("RandomNormal", [], ["r"], shape=[1 << 20])]),
    "weights that are written sparsely": _sparse(),
    "a choice that is none": _choice("c"),
    "moves without an end": _graph(
        [helper.make_node("Transpose", [f"w{at or ''}"], [f"w{at + 1}"]) for at in range(5)], [("w", [2, 2])]
    ),
    "parts without an end": _graph([helper.make_node("Exp", ["x"], [f"y{at}"]) for at in range(MAX_PARTS)]),
}
CHEAP = {
    "a function of inputs": _graph([helper.make_node("Exp", ["x"], ["y"])], [("w", [2])]),
    "a choice": _choice("x"),
    "weights of another type": _graph([helper.make_node("Cast", ["w"], ["v"], to=TensorProto.DOUBLE)], [("w", [2])]),
}


@pytest.mark.parametrize("what", [*COSTLY, *CHEAP])
def test_what_may_cost_much_to_open_is_known(what):
    """Whatever ONNX Runtime would compute before the first run, or a graph of many parts."""
    model = helper.make_model((COSTLY | CHEAP)[what])
    assert (what in COSTLY) == is_costly_to_open(model)


@pytest.mark.parametrize("repository", ["tiny_repository", "int8_repository", "int4_repository"])
def test_what_the_exporter_writes_costs_little_to_open(repository, request):
    """So no start waits for a process that tries it."""
    bundles = request.getfixturevalue(repository).whole()
    assert bundles
    assert {bundle.name: frozenset() for bundle in bundles} == {
        bundle.name: load_bundle(bundle / "1").costly for bundle in bundles
    }


def test_functions_are_refused(tmp_path):
    """Forty that call each other twice would be 2^40 nodes."""
    draft = classify_text(tmp_path / "m" / "1")
    exp = helper.make_node("Exp", ["a"], ["b"])
    path, model = next(iter(draft.models.items()))
    model.functions.append(helper.make_function("com.microsoft", "f", ["a"], ["b"], [exp], model.opset_import))
    with pytest.raises(BundleError, match=f"{path} has functions of its own"):
        load_bundle(draft.write())
