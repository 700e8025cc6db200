"""How long a device looks for the best of all logits, in the ways that a graph may do it."""

import time

import numpy as np
import onnx
from onnx import TensorProto, helper

from weft_server.runtime.session import Session, Value

_BEST, _GROUP = 64, 64
_HALF, _FLOAT, _INT64 = TensorProto.FLOAT16, TensorProto.FLOAT, TensorProto.INT64
_CAST = helper.make_node("Cast", ["half"], ["logits"], to=_FLOAT)
_BEST_OF_ALL = helper.make_node("TopK", ["logits", "k"], ["best", "ids"], axis=1)
_IN_HALF = [
    helper.make_node("TopK", ["half", "k"], ["best.half", "ids"], axis=1),
    helper.make_node("Cast", ["best.half"], ["best"], to=_FLOAT),
]
_NORMALISED = [
    helper.make_node("LogSoftmax", ["logits"], ["log_probs"], axis=1),
    helper.make_node("Slice", ["ids", "zero", "one", "one"], ["first"]),
    helper.make_node("GatherElements", ["log_probs", "first"], ["log_prob"], axis=1),
]
# The best lie in the groups that have the largest maxima.
_IN_GROUPS = [
    helper.make_node("Reshape", ["half", "to_groups"], ["groups"]),
    helper.make_node("ReduceMax", ["groups", "two"], ["maxima"], keepdims=0),
    helper.make_node("TopK", ["maxima", "k"], ["_1", "unordered"], axis=1),
    helper.make_node("TopK", ["unordered", "k"], ["chosen", "_2"], axis=1, largest=0),
    helper.make_node("Unsqueeze", ["chosen", "two"], ["indices"]),
    helper.make_node("GatherND", ["groups", "indices"], ["members"], batch_dims=1),
    helper.make_node("Reshape", ["members", "to_rows"], ["few"]),
    helper.make_node("TopK", ["few", "k"], ["best.half", "places"], axis=1),
    helper.make_node("Cast", ["best.half"], ["best"], to=_FLOAT),
    helper.make_node("Div", ["places", "size"], ["groups_of"]),
    helper.make_node("GatherElements", ["chosen", "groups_of"], ["found"], axis=1),
    helper.make_node("Sub", ["found", "groups_of"], ["groups_before"]),
    helper.make_node("Mul", ["groups_before", "size"], ["members_before"]),
    helper.make_node("Add", ["places", "members_before"], ["ids"]),
]
_CONSTANTS = {
    "k": np.array([_BEST]),
    "zero": np.array([0]),
    "one": np.array([1]),
    "two": np.array([2]),
    "size": np.array(_GROUP),
    "to_groups": np.array([0, -1, _GROUP]),
    "to_rows": np.array([0, _BEST * _GROUP]),
}
_WAYS = {
    "converted, with the normaliser": [_CAST, _BEST_OF_ALL, *_NORMALISED],
    "converted": [_CAST, _BEST_OF_ALL],
    "in half precision": _IN_HALF,
    "in groups": _IN_GROUPS,
}


def rankings(vocab, device, scale):
    """Microseconds of each way for each number of rows, captured if the device captures; and whether all agree."""
    logits = np.random.default_rng(1).normal(size=(max(scale.in_flight), vocab)).astype(np.float16)
    there = Value.like(logits, device)
    there.send(logits)
    for num_rows in scale.in_flight:
        expected = None
        for way, nodes in _WAYS.items():
            if nodes is _IN_GROUPS and (vocab % _GROUP or vocab // _GROUP < _BEST):
                continue
            time_us, ids = _measured(nodes, there.block.rows(0, num_rows), device, scale.seconds / 10)
            expected = ids if expected is None else expected
            yield {"rows": num_rows, "way": way, "us": round(1e6 * time_us, 1), "agrees": bool((ids == expected).all())}


def _measured(nodes, logits, device, seconds):
    num_rows = logits.shape[0]
    outputs = {"best": (_FLOAT, (num_rows, _BEST)), "ids": (_INT64, (num_rows, _BEST))}
    if "log_prob" in {name for node in nodes for name in node.output}:
        outputs["log_prob"] = _FLOAT, (num_rows, 1)
    used = {name for node in nodes for name in node.input}
    graph = helper.make_graph(
        nodes,
        "ranking",
        [helper.make_tensor_value_info("half", _HALF, logits.shape)],
        [helper.make_tensor_value_info(name, kind, shape) for name, (kind, shape) in outputs.items()],
        [onnx.numpy_helper.from_array(array, name) for name, array in _CONSTANTS.items() if name in used],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)
    session = Session(model.SerializeToString(), 1, device, captures=device.captures)
    written = {name: Value(shape, kind, device) for name, (kind, shape) in outputs.items()}
    bound = session.bind({"half": logits}, {name: value.block for name, value in written.items()})
    bound.capture()
    times, until = [], time.perf_counter() + seconds
    while not times or time.perf_counter() < until:
        started = time.perf_counter()
        bound.run()
        times.append(time.perf_counter() - started)
    return float(np.median(times)), written["ids"].fetch()
