"""An EXPLAIN graph in two parts: all layers' attentions in one pass, and how one of them is picked."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import onnx
from onnx import helper

from weft_export.graphs.onnx_graph import INNER
from weft_proto.v1 import bundle_pb2

_ATTENTION = INNER[bundle_pb2.GRAPH_ROLE_EXPLAIN]


@dataclass(frozen=True)
class ExplainParts:
    """Two .onnx files with the nodes of an EXPLAIN graph, beside it because they read its weights.

    whole has all of them. Its outputs are also the attentions, whose names are `attentions`.
    picking has those behind the attentions, which are inputs of it. Another layer then needs no other pass.
    """

    whole: Path
    picking: Path
    attentions: tuple[str, ...]


@contextmanager
def explain_parts(path: Path) -> Iterator[ExplainParts]:
    """Yield the parts of the graph in a file, which are removed afterwards."""
    model = onnx.load(path, load_external_data=False)
    inner = [info for info in model.graph.value_info if info.name.startswith(_ATTENTION)]
    inner.sort(key=lambda info: int(info.name.removeprefix(_ATTENTION)))
    parts = ExplainParts(
        path.with_suffix(".whole.onnx"), path.with_suffix(".picking.onnx"), tuple(info.name for info in inner)
    )
    try:
        onnx.save(_behind(model, inner), parts.picking)
        model.graph.output.extend(inner)
        onnx.save(model, parts.whole)
        yield parts
    finally:
        parts.whole.unlink(missing_ok=True)
        parts.picking.unlink(missing_ok=True)


def _behind(model: onnx.ModelProto, inner: list[onnx.ValueInfoProto]) -> onnx.ModelProto:
    """Return what of a model stands between inner values and its outputs. The values are inputs of it."""
    graph = model.graph
    given = {info.name for info in inner}
    wanted = {output.name for output in graph.output}
    nodes = []
    for node in reversed(graph.node):
        made = wanted.intersection(node.output) - given
        if made:
            nodes.append(node)
            wanted.update(_read_by(node))
    behind = onnx.ModelProto(ir_version=model.ir_version, opset_import=model.opset_import, functions=model.functions)
    behind.graph.CopyFrom(
        helper.make_graph(
            nodes[::-1],
            graph.name,
            [*(port for port in graph.input if port.name in wanted), *inner],
            graph.output,
            [tensor for tensor in graph.initializer if tensor.name in wanted],
            value_info=[info for info in graph.value_info if info.name in wanted - given],
        )
    )
    return behind


def _read_by(node: onnx.NodeProto) -> Iterator[str]:
    """Yield the names of what a node reads, in its subgraphs too."""
    yield from node.input
    for attribute in node.attribute:
        for inner in attribute.g.node:
            yield from _read_by(inner)
