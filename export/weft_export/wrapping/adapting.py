"""Gives the graph of an ONNX file the ports of bundle.proto, by nodes before its inputs and behind its output.

What a graph may take, each by this name or by --rename:

    pixel_values     of pictures
    input_ids        of texts
    lengths          how many ids of a row are real
    attention_mask   made of lengths: 1 for an id that is real
    token_type_ids   all 0: one text
    position_ids     0, 1, 2 ...

And what it may give:

    probabilities    as they are
    logits           through a Softmax
"""

from collections.abc import Mapping, Sequence

import onnx_ir

from weft_export.errors import CheckpointError
from weft_export.wrapping.onnx_model import OnnxModel

TEXT_INPUTS = ("input_ids", "lengths", "attention_mask", "token_type_ids", "position_ids")
IMAGE_INPUTS = ("pixel_values",)
OUTPUTS = ("probabilities", "logits")
_PORT_NAMES = (*TEXT_INPUTS, *IMAGE_INPUTS, *OUTPUTS)
_INTEGERS = (onnx_ir.DataType.INT64, onnx_ir.DataType.INT32)
_FLOATS = (onnx_ir.DataType.FLOAT, onnx_ir.DataType.FLOAT16)


def rename(model: onnx_ir.Model, names: Mapping[str, str]) -> None:
    """Give inputs and outputs of a graph other names, {old: new}.

    Raises:
        CheckpointError: there is no such port, or the new name is none that is known.
    """
    ports = {port.name: port for port in (*model.graph.inputs, *model.graph.outputs)}
    for old, new in names.items():
        if old not in ports:
            raise CheckpointError(f"--rename {old}={new}: the graph has {', '.join(map(str, ports))}, and no {old!r}")
        if new not in _PORT_NAMES:
            raise CheckpointError(f"--rename {old}={new}: {new!r} is none of {', '.join(_PORT_NAMES)}")
        if new in ports and new not in names:
            raise CheckpointError(f"--rename {old}={new}: the graph has {new!r} already")
    ends = {id(port) for port in ports.values()}
    for value in _values(model.graph):
        if value.name in _PORT_NAMES and id(value) not in ends:
            value.name = f"{value.name}.inner"
    for old, new in names.items():
        ports[old].name = new


def adapt(model: onnx_ir.Model, described: OnnxModel) -> None:
    """Make the ports of a graph those of its role, where another form of them is known.

    Raises:
        CheckpointError: it takes or gives something else, or the axis of its batch is fixed.
    """
    graph = model.graph
    given = {str(port.name): port for port in graph.inputs if port.name not in graph.initializers}
    _check_inputs(given, IMAGE_INPUTS if described.row.takes_image else TEXT_INPUTS)
    for name, port in given.items():
        _check_axes(name, port, 1 if described.row.takes_image or name == "lengths" else 2)
    before = _Nodes(graph)
    if described.image is not None:
        image = described.image
        shape: list[str | int] = ["batch", image.channels, image.height, image.width]
        before.cast(before.input("pixel_values", onnx_ir.DataType.FLOAT, shape), given["pixel_values"], _FLOATS)
    else:
        _take_text(before, given)
    graph.inputs[:] = before.inputs
    first = graph[0]
    graph.insert_before(first, before.nodes)
    _give_probabilities(graph, described)


class _Nodes:
    """Inputs and nodes that a graph gets before its own."""

    def __init__(self, graph: onnx_ir.Graph) -> None:
        self.graph = graph
        self.inputs: list[onnx_ir.Value] = []
        self.nodes: list[onnx_ir.Node] = []

    def input(self, name: str, dtype: onnx_ir.DataType, shape: Sequence[str | int]) -> onnx_ir.Value:
        """Add an input port."""
        port = onnx_ir.Value(name=name, type=onnx_ir.TensorType(dtype), shape=onnx_ir.Shape(shape))
        self.inputs.append(port)
        return port

    def add(self, operator: str, *inputs: onnx_ir.Value, **attributes: int) -> onnx_ir.Value:
        """Add a node with one output."""
        node = onnx_ir.node(operator, inputs, attributes=attributes, name=f"weft_{len(self.nodes)}_{operator}")
        node.outputs[0].name = f"weft.{len(self.nodes)}"
        self.nodes.append(node)
        return node.outputs[0]

    def constant(self, value: int | list[int], dtype: onnx_ir.DataType) -> onnx_ir.Value:
        """Add a number, or a list of them."""
        node = onnx_ir.node("Constant", [], attributes={"value": onnx_ir.tensor(value, dtype=dtype)})
        node.outputs[0].name = f"weft.{len(self.nodes)}"
        self.nodes.append(node)
        return node.outputs[0]

    def cast(self, value: onnx_ir.Value, old: onnx_ir.Value, known: Sequence[onnx_ir.DataType]) -> None:
        """Put a value in the place of an old input, in its data type."""
        if old.dtype is None or old.dtype not in known:
            names = " or ".join(str(dtype).lower() for dtype in known)
            raise CheckpointError(f"the input {old.name!r} is of the type {old.dtype}; it must be {names}")
        old.name = f"{old.name}.given"
        old.replace_all_uses_with(self.add("Cast", value, to=int(old.dtype)))


def _take_text(before: _Nodes, given: Mapping[str, onnx_ir.Value]) -> None:
    i32, i64 = onnx_ir.DataType.INT32, onnx_ir.DataType.INT64
    input_ids = before.input("input_ids", i64, ["batch", "seq"])
    lengths = before.input("lengths", i32, ["batch"])
    before.cast(input_ids, given["input_ids"], _INTEGERS)
    if "lengths" in given:
        before.cast(lengths, given["lengths"], _INTEGERS)
    zeros = before.add("Mul", input_ids, before.constant(0, i64))
    seq = before.add("Gather", before.add("Shape", input_ids), before.constant(1, i64), axis=0)
    positions = before.add("Range", before.constant(0, i64), seq, before.constant(1, i64))
    if "attention_mask" in given:
        rows = before.add("Unsqueeze", before.add("Cast", lengths, to=int(i64)), before.constant([1], i64))
        kinds = (*_INTEGERS, *_FLOATS, onnx_ir.DataType.BOOL)
        before.cast(before.add("Less", positions, rows), given["attention_mask"], kinds)
    if "token_type_ids" in given:
        before.cast(zeros, given["token_type_ids"], _INTEGERS)
    if "position_ids" in given:
        before.cast(before.add("Add", zeros, positions), given["position_ids"], _INTEGERS)


def _give_probabilities(graph: onnx_ir.Graph, described: OnnxModel) -> None:
    found = [port for port in graph.outputs if port.name in OUTPUTS]
    if len(found) != 1:
        has = ", ".join(str(port.name) for port in graph.outputs)
        raise CheckpointError(
            f"one output must be logits or probabilities, and the graph has {has}: say which by --rename OLD=logits"
            " or --rename OLD=probabilities"
        )
    (port,) = found
    if port.dtype not in _FLOATS:
        raise CheckpointError(f"the output {port.name!r} is of the type {port.dtype}; it must be float or float16")
    shape: list[str | int] = ["batch", *(["seq"] if described.row.labels_tokens else []), len(described.labels)]
    size = port.shape[-1] if port.shape is not None and len(port.shape) else None
    if port.shape is not None and len(port.shape) != len(shape):
        wanted = "[batch, seq, labels]" if described.row.labels_tokens else "[batch, labels]"
        raise CheckpointError(f"the output {port.name!r} has {len(port.shape)} axes; for this task it is {wanted}")
    if isinstance(size, int) and size != len(described.labels):
        raise CheckpointError(f"the graph gives {size} values for a row, and there are {len(described.labels)} labels")
    is_logits, port.name = port.name == "logits", f"{port.name}.given"
    # In float32, as our own graphs do it, whatever the weights are of.
    steps = [("Cast", {"to": int(onnx_ir.DataType.FLOAT)}), *([("Softmax", {"axis": -1})] if is_logits else [])]
    value = port
    for operator, attributes in steps:
        node = onnx_ir.node(operator, [value], attributes=attributes, name=f"weft_{operator}")
        node.outputs[0].name = f"weft.{operator}"
        graph.append(node)
        value = node.outputs[0]
    value.name, value.dtype, value.shape = "probabilities", onnx_ir.DataType.FLOAT, onnx_ir.Shape(shape)
    graph.outputs[:] = [value]


def _check_inputs(given: Mapping[str, onnx_ir.Value], known: Sequence[str]) -> None:
    hint = f"known are {', '.join(known)}: --rename OLD=NEW gives an input another name"
    for name in given:
        if name not in known:
            raise CheckpointError(f"the graph takes {name!r}; {hint}")
    if known[0] not in given:
        raise CheckpointError(f"the graph takes no {known[0]}; {hint}")
    if known is TEXT_INPUTS and ("lengths" in given) == ("attention_mask" in given):
        raise CheckpointError("a graph of texts must take lengths or an attention_mask, to tell ids from padding")


def _check_axes(name: str, port: onnx_ir.Value, num_free: int) -> None:
    """Refuse a graph that was exported for one size of batch, or one length of texts."""
    axes = list(port.shape or [])[:num_free]
    for what, size in zip(("batch", "length"), axes, strict=False):
        if isinstance(size, int):
            raise CheckpointError(
                f"the {what} of the input {name!r} is fixed at {size}: export the model again with a free axis,"
                " in torch.onnx.export by dynamic_shapes"
            )


def _values(graph: onnx_ir.Graph) -> list[onnx_ir.Value]:
    made = [value for node in graph.all_nodes() for value in node.outputs]
    inner = [value for sub in graph.subgraphs() for value in (*sub.inputs, *sub.initializers.values())]
    return [*made, *inner, *graph.inputs, *graph.initializers.values()]
