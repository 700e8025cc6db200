"""From a graph's module to an .onnx file with its weights beside it."""

import contextlib
import gc
import logging
import warnings
from collections.abc import Iterator
from pathlib import Path

import onnx
import onnx_ir
import torch
from torch.onnx import OnnxExporterError, ONNXProgram

from weft_export.graphs.graphs import Graph
from weft_export.graphs.simplifying import simplify
from weft_export.graphs.weight_files import WeightFiles
from weft_export.layers.attention import OPERATOR as ATTENTION
from weft_export.layers.block_linear import goes_in_pairs
from weft_proto.bundle_rules import ADAPTER_PORTS, ONNX_NAME
from weft_proto.v1 import bundle_pb2

OPSET = 21
OWN_DOMAIN = "weft"
"""Of operators that stand for what is put in their place."""
INNER = {bundle_pb2.GRAPH_ROLE_EXPLAIN: "attention.", bundle_pb2.GRAPH_ROLE_DECODER: "position."}
"""What the names of a graph's inner values begin with that its module returns behind its outputs, by its role."""

# What last_position takes and gives.
_POSITION = (f"{INNER[bundle_pb2.GRAPH_ROLE_DECODER]}0", f"{INNER[bundle_pb2.GRAPH_ROLE_DECODER]}1")
_DATA_TYPES = {onnx.TensorProto.DataType.Value(name): data_type for data_type, name in ONNX_NAME.items()}


def write_graph(graph: Graph, directory: Path, files: WeightFiles | None = None) -> None:
    """Trace a graph's module and write <file_name> and <file_name>.data into the directory.

    One that is made of others is not traced. It reads their weights.
    files are those of the bundle's graphs before it: without them, it gets all its weights in a file of its own.
    """
    if graph.made_of:
        from weft_export.graphs.score_graph import score_graph  # noqa: PLC0415 - late: for models that write

        *encoder, decoder = (directory / name for name in graph.made_of)
        made = score_graph(encoder[0] if encoder else None, decoder, graph.states, _POSITION)
        onnx.save(made, directory / graph.file_name)
        return
    program = _exported(graph)
    if any(port.name == ADAPTER_PORTS[0] for port in graph.inputs):
        from weft_export.graphs.adapting import expand  # noqa: PLC0415 - late: for graphs that take adapters

        expand(program.model)
    if any(node.domain == OWN_DOMAIN for node in program.model.graph):
        from weft_export.graphs.recurring import expand_recurrences  # noqa: PLC0415 - late: for state spaces alone

        expand_recurrences(program.model)
    simplify(program.model)
    if any(f"{node.domain}::{node.op_type}" == ATTENTION for node in program.model.graph):
        from weft_export.graphs.ragged_attention import expand_attention  # noqa: PLC0415 - late: for encoders

        expand_attention(program.model)
    forget_origin(program.model)
    _name_rows(program.model)
    _take_in(program.model, len(graph.outputs), INNER.get(graph.role, ""))
    path = directory / graph.file_name
    (files or WeightFiles()).save(program, path, graph.role)
    if graph.deferred:
        from weft_export.graphs.deferred import defer  # noqa: PLC0415 - late: for decoders

        model = onnx.load(path, load_external_data=False)
        defer(model.graph, graph.deferred)
        onnx.save(model, path)


def _exported(graph: Graph) -> ONNXProgram:
    from weft_export.graphs import decompositions  # noqa: PLC0415 - late: for graphs that are traced

    with _quiet(), _uncollected():
        try:
            with decompositions.where_they_stand():
                return _traced(graph)
        except OnnxExporterError:
            # Another release of torch may have no twin of an operator that is kept.
            return _traced(graph)


def _traced(graph: Graph) -> ONNXProgram:
    program = torch.onnx.export(
        graph.module.eval(),
        tuple(port.example for port in graph.inputs),
        input_names=[port.name for port in graph.inputs],
        output_names=list(graph.outputs),
        dynamic_shapes=(tuple(port.axes for port in graph.inputs),),
        opset_version=OPSET,
        dynamo=True,
        optimize=False,
        verbose=False,
    )
    assert program is not None
    return program


def _name_rows(model: onnx_ir.Model) -> None:
    """Call the first axis of outputs `rows` where the tracer found out that there is one less than `ends`."""
    for value in model.graph.outputs:
        if value.shape is not None and str(value.shape[0]) == "ends - 1":
            value.shape[0] = onnx_ir.SymbolicDim("rows")


def _take_in(model: onnx_ir.Model, num_outputs: int, name: str) -> None:
    """Make inner values of the outputs behind the first num_outputs. Their names begin with `name`."""
    outputs = model.graph.outputs
    while len(outputs) > num_outputs:
        value = outputs.pop()
        value.name = f"{name}{len(outputs) - num_outputs}"


def read_ports(path: Path, role: bundle_pb2.GraphRole.ValueType) -> bundle_pb2.Graph:
    """Describe the inputs and outputs of an .onnx file as they stand in it."""
    model = onnx.load(path, load_external_data=False)
    return bundle_pb2.Graph(
        role=role,
        path=path.name,
        inputs=[_port(value) for value in model.graph.input],
        outputs=[_port(value) for value in model.graph.output],
        unpadded=_is_unpadded(model.graph),
        row_multiple=_row_multiple(model.graph),
    )


def _row_multiple(graph: onnx.GraphProto) -> int:
    """See Graph in bundle.proto: products of weights in larger blocks read rows in pairs."""
    products = [{each.name: each.i for each in node.attribute} for node in graph.node if node.op_type == "MatMulNBits"]
    return 1 + any(goes_in_pairs(each.get("bits", 4), each["block_size"]) for each in products)


def _is_unpadded(graph: onnx.GraphProto) -> bool:
    """Whether the graph looks for the places of a batch that are less than its lengths: see layers/unpadding.py."""
    makers = {name: node for node in graph.node for name in node.output}
    found = [makers.get(node.input[0]) for node in graph.node if node.op_type == "NonZero"]
    flattened = [makers.get(node.input[0]) for node in found if node is not None and node.op_type == "Reshape"]
    return any(node is not None and node.op_type == "Less" for node in flattened)


def _port(value: onnx.ValueInfoProto) -> bundle_pb2.Port:
    tensor = value.type.tensor_type
    shape = [axis.dim_param or str(axis.dim_value) for axis in tensor.shape.dim]
    return bundle_pb2.Port(name=value.name, data_type=_DATA_TYPES[tensor.elem_type], shape=shape)


def forget_origin(model: onnx_ir.Model) -> None:
    """Take out of a model what says who made it, and where."""
    # The exporter notes stack traces on every node: large, and full of paths of the machine that exported.
    for node in model.graph.all_nodes():
        node.metadata_props.clear()
        for value in node.outputs:
            value.metadata_props.clear()
    for value in (*model.graph.inputs, *model.graph.initializers.values()):
        value.metadata_props.clear()
    model.graph.metadata_props.clear()
    model.metadata_props.clear()


@contextlib.contextmanager
def _uncollected() -> Iterator[None]:
    # A trace makes millions of objects that live to its end: looking through them again and again takes a tenth of it.
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    # torch warns of its own deprecated calls, of absent torchvision, of axes that share a name: no user's concern.
    logger = logging.getLogger("torch.onnx._internal.exporter._registration")
    level = logger.level
    logger.setLevel(logging.ERROR)
    try:
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", category=FutureWarning)
            warnings.filterwarnings("ignore", category=DeprecationWarning)
            warnings.filterwarnings("ignore", message="# The axis name")
            yield
    finally:
        logger.setLevel(level)
