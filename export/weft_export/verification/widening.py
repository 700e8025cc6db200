"""Graphs for devices, as a CPU can run them, which has no kernels for bfloat16 nor for caches in blocks.

A bfloat16 graph is computed in float32, and each result rounded to bfloat16. Its ports are float32, because numpy knows
no bfloat16. Graphs in float16 need that not: ONNX Runtime does the same by itself.
For caches in blocks see paged_stand_in.py.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import onnx
from onnx import helper

BFLOAT16, FLOAT32 = onnx.TensorProto.BFLOAT16, onnx.TensorProto.FLOAT


@contextmanager
def runnable(path: Path) -> Iterator[Path]:
    """Yield an .onnx file that a CPU can load: `path` itself, or a stand-in for it if a CPU has no kernels for it."""
    model = onnx.load(path, load_external_data=False)
    if not (_paged(model) or _is_narrow(model)):
        yield path
        return
    model = _stand_in(model)
    # Beside the original, whose file of weights it shares.
    stand_in = path.with_suffix(".wide.onnx")
    onnx.save(model, stand_in)
    try:
        yield stand_in
    finally:
        stand_in.unlink()


def on_cpu(path: Path) -> bytes:
    """Return a graph of a bundle with its weights, as a CPU can run it: that of a small model, below 2 GiB."""
    stood_in: bytes = _stand_in(onnx.load(path)).SerializeToString()
    return stood_in


def _stand_in(model: onnx.ModelProto) -> onnx.ModelProto:
    paged = _paged(model)
    if paged:
        from weft_export.verification import paged_stand_in  # noqa: PLC0415 - late: for such graphs alone

        # Before its nodes lie bare, the operator's stand-in is one node, whose results are rounded as any other's.
        paged_stand_in.call_stand_ins(model, paged)
    if _is_narrow(model):
        widen(model)
    return paged_stand_in.inline(model) if paged else model


def _paged(model: onnx.ModelProto) -> list[onnx.NodeProto]:
    """Return the nodes that read caches in blocks."""
    return [node for node in model.graph.node if node.op_type == "PagedAttention"]


def _is_narrow(model: onnx.ModelProto) -> bool:
    return any(tensor.data_type == BFLOAT16 for tensor in model.graph.initializer)


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
