"""A decoder's graph for steps that draw, on a device: what all tokens of a row weigh at its temperature, and more best.

So a draw is decided by what the graph says. Otherwise the host would have to be sent all logits of a row, to find what
they weigh together. The CPU has them at hand, and its graph stays as it is.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from weft_proto.bundle_rules import CANDIDATE_PORTS

if TYPE_CHECKING:
    from collections.abc import Sequence

# Read: of each row, above 0.
TEMPERATURES = "temperatures"
# Written: see Candidates.
TOTAL_WEIGHTS = "total_weights"
# Of each row, so many of the best are given.
MOST_CANDIDATES = 256
# With more words, the best groups of so many are looked for first. Of 128 rows of 128,256 words, the best 256 take an
# H200 484 us so, and 1,603 us at once. Of 32,000 words both take about as long.
_GROUP = 64
_MANY_WORDS = 65_536
_LOGITS = "logits"
_BEST, _IDS = CANDIDATE_PORTS[:2]


def drawing(model: onnx.ModelProto) -> onnx.ModelProto:
    """Return the graph with MOST_CANDIDATES candidates, or all there are, and TOTAL_WEIGHTS at TEMPERATURES.

    A graph that looks for few candidates in groups gives as many as before.
    """
    drawn = onnx.ModelProto()
    drawn.CopyFrom(model)
    graph = drawn.graph
    ports = {port.name: port for port in graph.output}
    vocab = ports[_LOGITS].type.tensor_type.shape.dim[1].dim_value
    _give_more(graph, ports[_IDS], ports[_BEST], min(MOST_CANDIDATES, vocab), vocab)
    rows = ports[_LOGITS].type.tensor_type.shape.dim[0].dim_param
    graph.input.append(helper.make_tensor_value_info(TEMPERATURES, TensorProto.FLOAT, [rows]))
    graph.output.append(helper.make_tensor_value_info(TOTAL_WEIGHTS, TensorProto.FLOAT, [rows]))
    graph.node.extend(_weighing(graph))
    return drawn


def _weighing(graph: onnx.GraphProto) -> list[onnx.NodeProto]:
    """The sum of exp((logit - best) / temperature). LogSoftmax has it at the best token, whose weight is 1.

    The best logit is taken away first. To divide large logits by a small temperature would round them too much.
    """
    start = _constant(graph, "drawn.start", [0])
    stop = axis = _constant(graph, "drawn.one", [1])
    return [
        helper.make_node("Slice", [_BEST, start, stop, axis], ["drawn.best"]),
        helper.make_node("Slice", [_IDS, start, stop, axis], ["drawn.best_id"]),
        helper.make_node("Sub", [_LOGITS, "drawn.best"], ["drawn.gaps"]),
        helper.make_node("Unsqueeze", [TEMPERATURES, axis], ["drawn.temperatures"]),
        helper.make_node("Div", ["drawn.gaps", "drawn.temperatures"], ["drawn.tempered"]),
        helper.make_node("LogSoftmax", ["drawn.tempered"], ["drawn.log_shares"], axis=1),
        helper.make_node("GatherElements", ["drawn.log_shares", "drawn.best_id"], ["drawn.log_share"], axis=1),
        helper.make_node("Neg", ["drawn.log_share"], ["drawn.log_total"]),
        helper.make_node("Exp", ["drawn.log_total"], ["drawn.total"]),
        helper.make_node("Squeeze", ["drawn.total", axis], [TOTAL_WEIGHTS]),
    ]


def _give_more(
    graph: onnx.GraphProto, ids: onnx.ValueInfoProto, best: onnx.ValueInfoProto, count: int, vocab: int
) -> None:
    """Let TopK of all logits give more."""
    columns = [port.type.tensor_type.shape.dim[1] for port in (best, ids)]
    for index, node in enumerate(graph.node):
        if node.op_type == "TopK" and node.input[0] == _LOGITS and columns[0].dim_value < count:
            for column in columns:
                column.dim_value = count
            if vocab < _MANY_WORDS:
                node.input[1] = _constant(graph, "drawn.count", [count])
                return
            del graph.node[index]
            for offset, each in enumerate(_best_in_groups(graph, count, vocab)):
                graph.node.insert(index + offset, each)
            return


def _best_in_groups(graph: onnx.GraphProto, count: int, vocab: int) -> Sequence[onnx.NodeProto]:
    """The `count` best lie in the `count` groups whose best are the best.

    In ascending order the groups keep their ids in order. So of equal logits the lower id comes first, as in TopK.
    """
    padding = -vocab % _GROUP
    count_name = _constant(graph, "drawn.count", [count])
    axis = _constant(graph, "drawn.group_axis", [2])
    grouped = _constant(graph, "drawn.grouped", [0, (vocab + padding) // _GROUP, _GROUP])
    flat = _constant(graph, "drawn.flat", [0, count * _GROUP])
    spread = _constant(graph, "drawn.spread", [1, 1, _GROUP])
    size = _constant(graph, "drawn.group", [_GROUP])
    pads = _constant(graph, "drawn.pads", [0, 0, 0, padding])
    graph.initializer.append(numpy_helper.from_array(np.array(-np.inf, np.float32), "drawn.nothing"))
    padded = [helper.make_node("Pad", [_LOGITS, pads, "drawn.nothing"], ["drawn.padded"])] if padding else []
    return [
        *padded,
        helper.make_node("Reshape", ["drawn.padded" if padding else _LOGITS, grouped], ["drawn.groups"]),
        helper.make_node("ReduceMax", ["drawn.groups", axis], ["drawn.maxima"], keepdims=0),
        helper.make_node("TopK", ["drawn.maxima", count_name], ["drawn.most", "drawn.ranked"], axis=1),
        helper.make_node("TopK", ["drawn.ranked", count_name], ["drawn.chosen", "drawn.order"], axis=1, largest=0),
        helper.make_node("Unsqueeze", ["drawn.chosen", axis], ["drawn.chosen.column"]),
        helper.make_node("Expand", ["drawn.chosen.column", spread], ["drawn.index"]),
        helper.make_node("GatherElements", ["drawn.groups", "drawn.index"], ["drawn.found"], axis=1),
        helper.make_node("Reshape", ["drawn.found", flat], ["drawn.among"]),
        helper.make_node("TopK", ["drawn.among", count_name], [_BEST, "drawn.places"], axis=1),
        helper.make_node("Div", ["drawn.places", size], ["drawn.which"]),
        helper.make_node("GatherElements", ["drawn.chosen", "drawn.which"], ["drawn.group_id"], axis=1),
        helper.make_node("Sub", ["drawn.group_id", "drawn.which"], ["drawn.further"]),
        helper.make_node("Mul", ["drawn.further", size], ["drawn.moved"]),
        helper.make_node("Add", ["drawn.places", "drawn.moved"], [_IDS]),
    ]


def _constant(graph: onnx.GraphProto, name: str, values: Sequence[int]) -> str:
    graph.initializer.append(numpy_helper.from_array(np.array(values, np.int64), name))
    return name
