"""A decoder's graph without what only some runs ask for, for a device.

A step of greedy rows needs the best candidates and nothing else. On a CPU a graph has a condition for the rest
(READS_ALL). On a device a condition would wait for the host, and no captured graph has one. So there are two sessions.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import onnx
from onnx import TensorProto, helper

from weft_proto.bundle_rules import CANDIDATE_PORTS, READS_ALL
from weft_server.runtime.cuda.device_weights import send_weights
from weft_server.runtime.cuda.drawing import drawing
from weft_server.runtime.session import Session

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from weft_server.runtime.device import Device
    from weft_server.runtime.halt import Halt

_LOGITS = "logits"


class Decoder(NamedTuple):
    """A decoder on a device. `best` is for steps that want the best candidates alone, if there is a graph for them."""

    whole: Session
    best: Session | None = None


def open_decoder(path: Path, num_threads: int, device: Device, halt: Halt, *, num_best: int) -> Decoder:
    """Open a decoder on a device that does not work in place, both graphs over the same weights.

    The smaller graph gives `num_best` candidates, or fewer if the whole one does.
    """
    model = onnx.load(path, format="protobuf", load_external_data=False)
    cut = best_only(model, num_best)
    if cut is None:
        return Decoder(Session(path, num_threads, device, captures=device.captures, halt=halt))
    weights = send_weights(model, path.parent, device)
    whole, best = (
        Session(graph.SerializeToString(), num_threads, device, captures=device.captures, halt=halt, weights=weights)
        for graph in (drawing(model), cut)
    )
    return Decoder(whole, best)


def best_only(model: onnx.ModelProto, num_best: int) -> onnx.ModelProto | None:
    """Return the graph without `logsumexp` and `logits`, and with fewer candidates. None if it has a condition."""
    if any(port.name == READS_ALL for port in model.graph.input):
        return None
    cut = onnx.ModelProto()
    cut.CopyFrom(model)
    graph = cut.graph
    outputs = [port for port in graph.output if port.name not in CANDIDATE_PORTS[2:]]
    _rank_few(graph, num_best)
    _rank_in_half(graph)
    nodes = _needed(graph.node, {port.name for port in outputs})
    del graph.output[:], graph.node[:]
    graph.output.extend(outputs)
    graph.node.extend(nodes)
    return cut


def _rank_few(graph: onnx.GraphProto, num_best: int) -> None:
    """Let TopK of all logits look for so many. Of 256 rows of 128,256 words, 64 take an H200 seven times as long as 8.

    A graph that looks in groups stays as it is.
    """
    ports = [port for port in graph.output if port.name in CANDIDATE_PORTS[:2]]
    columns = [port.type.tensor_type.shape.dim[1] for port in ports]
    for node in graph.node:
        if node.op_type == "TopK" and node.input[0] == _LOGITS and columns[0].dim_value > num_best:
            node.input[1] = "num_best"
            graph.initializer.append(helper.make_tensor("num_best", TensorProto.INT64, [1], [num_best]))
            for column in columns:
                column.dim_value = num_best


def _rank_in_half(graph: onnx.GraphProto) -> None:
    """Let TopK read logits of float16, and convert the best alone. Each keeps its value, and all their order.

    TopK takes no bfloat16 in the opset of our graphs.
    """
    cast = next(node for node in graph.node if _LOGITS in node.output)
    types = {info.name: info.type.tensor_type.elem_type for info in graph.value_info}
    if cast.op_type != "Cast" or types.get(cast.input[0]) != TensorProto.FLOAT16:
        return
    for index, node in enumerate(graph.node):
        if node.op_type == "TopK" and node.input[0] == _LOGITS:
            best = node.output[0]
            node.input[0], node.output[0] = cast.input[0], f"{best}.half"
            graph.node.insert(index + 1, helper.make_node("Cast", [f"{best}.half"], [best], to=TensorProto.FLOAT))
            return


def _needed(nodes: Sequence[onnx.NodeProto], names: set[str]) -> list[onnx.NodeProto]:
    """Return the nodes that make `names`, directly or through others, in their order."""
    wanted, found = set(names), []
    for node in reversed(nodes):
        if wanted.intersection(node.output):
            found.append(node)
            wanted.update(node.input)
    return found[::-1]
