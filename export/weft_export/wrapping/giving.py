"""Nodes behind a graph's output: probabilities of what it gives, or a vector for each input.

What a graph may give, each by this name or by --rename:

    probabilities      as they are
    logits             through a Softmax
    embedding          a vector for each input
    last_hidden_state  a vector for each place, which are pooled
"""

import onnx_ir

from weft_export.errors import CheckpointError
from weft_export.wrapping.building import FLOATS, Nodes
from weft_export.wrapping.onnx_model import OnnxModel
from weft_proto.bundle_rules import MAX_DIMENSIONS
from weft_proto.v1 import bundle_pb2

I64, F32 = onnx_ir.DataType.INT64, onnx_ir.DataType.FLOAT
SHARES = ("probabilities", "logits")
VECTORS = ("embedding", "last_hidden_state")
OUTPUTS = (*SHARES, *VECTORS)
# What exporters of sentence-transformers and CLIP call them.
ALIASES = {
    "sentence_embedding": "embedding",
    "text_embeds": "embedding",
    "image_embeds": "embedding",
    "token_embeddings": "last_hidden_state",
}
# Less is no length that anything can be divided by.
_LEAST_LENGTH = 1e-12


def chosen(graph: onnx_ir.Graph, described: OnnxModel) -> onnx_ir.Value:
    """Return the output that a task is done by. Of a vector and of vectors for each place, it is the vector.

    Raises:
        CheckpointError: there is none, or there are several.
    """
    known = VECTORS if described.row.embeds else SHARES
    found = sorted((port for port in graph.outputs if port.name in known), key=lambda port: known.index(str(port.name)))
    if not found or (len(found) > 1 and not described.row.embeds):
        has = ", ".join(str(port.name) for port in graph.outputs)
        renames = " or ".join(f"--rename OLD={name}" for name in reversed(known))
        raise CheckpointError(
            f"one output must be {' or '.join(reversed(known))}, and the graph has {has}: say which by {renames}"
        )
    port = found[0]
    if port.dtype not in FLOATS:
        raise CheckpointError(f"the output {port.name!r} is of the type {port.dtype}; it must be float or float16")
    return port


def give_probabilities(graph: onnx_ir.Graph, described: OnnxModel) -> None:
    """Make the one output of a graph the probabilities of each label. Raises CheckpointError for other shapes."""
    port = chosen(graph, described)
    shape: list[str | int] = ["batch", *(["seq"] if described.row.labels_tokens else []), len(described.labels)]
    wanted = "[batch, seq, labels]" if described.row.labels_tokens else "[batch, labels]"
    _check_axes(port, len(shape), wanted)
    size = _last(port)
    if size is not None and size != len(described.labels):
        raise CheckpointError(f"the graph gives {size} values for a row, and there are {len(described.labels)} labels")
    if port.name == "logits" and len(described.labels) == 1:
        raise CheckpointError(
            "the graph gives one logit, whose softmax is always 1: a cross-encoder or another model of one label is"
            " exported from its checkpoint, by weft export"
        )
    is_logits, port.name = port.name == "logits", f"{port.name}.given"
    after = Nodes(graph, "weft.out")
    # In float32, as our own graphs do it, whatever the weights are of.
    value = after.add("Cast", port, to=int(F32))
    if is_logits:
        value = after.add("Softmax", value, axis=-1)
    _end(graph, after, value, "probabilities", shape)


def give_vectors(graph: onnx_ir.Graph, described: OnnxModel) -> None:
    """Make the one output of a graph a vector [batch, dimensions] for each input, pooled as is said.

    Raises:
        CheckpointError: the graph does not say how many numbers a vector has, or it has other axes.
    """
    port = chosen(graph, described)
    has_places = port.name == "last_hidden_state"
    _check_axes(port, 3 if has_places else 2, "[batch, places, width]" if has_places else "[batch, width]")
    size = _last(port)
    if size is None or not 1 <= size <= MAX_DIMENSIONS:
        raise CheckpointError(
            f"the graph does not say how many numbers a vector of the output {port.name!r} has: export it again with a"
            f" fixed last axis of at most {MAX_DIMENSIONS}"
        )
    described.embedding_spec.dimensions = size
    port.name = f"{port.name}.given"
    after = Nodes(graph, "weft.out")
    value = after.add("Cast", port, to=int(F32))
    if has_places:
        value = _pooled(after, value, graph, described.embedding_spec.pooling)
    if described.embedding_spec.normalized:
        length = after.add("ReduceL2", value, axes=[-1], keepdims=1)
        value = after.add("Div", value, after.add("Max", length, after.constant(_LEAST_LENGTH, F32)))
    _end(graph, after, value, "embedding", ["batch", size])


def _pooled(after: Nodes, places: onnx_ir.Value, graph: onnx_ir.Graph, pooling: int) -> onnx_ir.Value:
    """Return a vector [batch, width] of places [batch, places, width], of which `lengths` are real in a text."""
    if pooling == bundle_pb2.POOLING_FIRST:
        return after.add("Gather", places, after.constant(0, I64), axis=1)
    lengths = next((port for port in graph.inputs if port.name == "lengths"), None)
    sizes = after.add("Shape", places)
    seq = after.add("Gather", sizes, after.constant(1, I64), axis=0)
    batch = after.add("Slice", sizes, *(after.constant([each], I64) for each in (0, 1)))
    counts = after.add("Expand", seq, batch) if lengths is None else after.add("Cast", lengths, to=int(I64))
    rows = after.add("Unsqueeze", counts, after.constant([1, 2], I64))
    # A product, not a masked sum or a pick: ONNX Runtime sums one row in another order than several.
    positions = after.add("Range", after.constant(0, I64), seq, after.constant(1, I64))
    if pooling == bundle_pb2.POOLING_MAX:
        column = after.add("Less", after.add("Unsqueeze", positions, after.constant([0, 2], I64)), rows)
        masked = after.add("Where", column, places, after.constant(float("-inf"), F32))
        return after.add("ReduceMax", masked, axes=[1], keepdims=0)
    line = after.add("Unsqueeze", positions, after.constant([0, 1], I64))
    if pooling == bundle_pb2.POOLING_LAST:
        share = after.add("Cast", after.add("Equal", line, after.add("Sub", rows, after.constant(1, I64))), to=int(F32))
    else:
        real = after.add("Cast", after.add("Less", line, rows), to=int(F32))
        share = after.add("Div", real, after.add("Cast", rows, to=int(F32)))
    return after.add("Squeeze", after.add("MatMul", share, places), after.constant([1], I64))


def _end(graph: onnx_ir.Graph, after: Nodes, value: onnx_ir.Value, name: str, shape: list[str | int]) -> None:
    graph.extend(after.nodes)
    value.name, value.dtype, value.shape = name, F32, onnx_ir.Shape(shape)
    graph.outputs[:] = [value]


def _check_axes(port: onnx_ir.Value, number: int, wanted: str) -> None:
    if port.shape is not None and len(port.shape) != number:
        raise CheckpointError(f"the output {port.name!r} has {len(port.shape)} axes; for this task it is {wanted}")


def _last(port: onnx_ir.Value) -> int | None:
    size = port.shape[-1] if port.shape is not None and len(port.shape) else None
    return size if isinstance(size, int) else None
