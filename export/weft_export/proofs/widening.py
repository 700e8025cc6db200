"""A bfloat16 graph for a processor that has no kernels for it: computed in float32, each result rounded to bfloat16.

It stands in for the graph in the parity run. Graphs in float16 need none: ONNX Runtime does the same by itself.
Its ports are float32, because numpy knows no bfloat16.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import onnx
from onnx import helper

BFLOAT16, FLOAT32 = onnx.TensorProto.BFLOAT16, onnx.TensorProto.FLOAT


@contextmanager
def runnable(path: Path) -> Iterator[Path]:
    """Yield an .onnx file that a CPU can load: `path` itself, or a stand-in for it if it has bfloat16."""
    model = onnx.load(path, load_external_data=False)
    if all(tensor.data_type != BFLOAT16 for tensor in model.graph.initializer):
        yield path
        return
    widen(model)
    # Beside the original, whose file of weights it shares.
    stand_in = path.with_suffix(".wide.onnx")
    onnx.save(model, stand_in)
    try:
        yield stand_in
    finally:
        stand_in.unlink()


def widen(model: onnx.ModelProto) -> None:
    """Make every bfloat16 value of a model without subgraphs float32, in place; its weights stay as they are stored."""
    graph = model.graph
    narrow = {value.name for value in (*graph.input, *graph.output, *graph.value_info) if _widen_type(value)}
    nodes: list[onnx.NodeProto] = []
    for tensor in graph.initializer:
        if tensor.data_type == BFLOAT16:
            name, tensor.name = tensor.name, f"{tensor.name}.narrow"
            nodes.append(helper.make_node("Cast", [tensor.name], [name], to=FLOAT32))
    for node in graph.node:
        nodes += _widened(node, narrow)
    del graph.node[:]
    graph.node.extend(nodes)


def _widen_type(value: onnx.ValueInfoProto) -> bool:
    tensor_type = value.type.tensor_type
    is_bfloat16: bool = tensor_type.elem_type == BFLOAT16
    if is_bfloat16:
        tensor_type.elem_type = FLOAT32
    return is_bfloat16


def _widened(node: onnx.NodeProto, narrow: set[str]) -> Iterator[onnx.NodeProto]:
    """Yield a node that makes float32 of what it made in bfloat16, then the rounding of that."""
    for attribute in node.attribute:
        assert not attribute.HasField("g"), f"{node.op_type} has a subgraph, which is not widened. This is a bug."
        if node.op_type == "Cast" and attribute.name == "to" and attribute.i == BFLOAT16:
            attribute.i = FLOAT32
    yield node
    for index, name in enumerate(node.output):
        if name in narrow:
            node.output[index] = f"{name}.wide"
            yield helper.make_node("Cast", [f"{name}.wide"], [f"{name}.rounded"], to=BFLOAT16)
            yield helper.make_node("Cast", [f"{name}.rounded"], [name], to=FLOAT32)
