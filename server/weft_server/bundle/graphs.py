"""The .onnx files of a bundle: parsed without their weights, and searched for whatever could reach outside the bundle.

What external data can do to a loader, and the defences:
https://github.com/onnx/onnx/blob/main/docs/ExternalDataSecurity.md
"""

import math
import re
from collections.abc import Iterable, Iterator
from pathlib import Path

import onnx
from google.protobuf.message import DecodeError, Message

from weft_proto.bundle_rules import EXTERNAL_DATA_KEYS, ONNX_NAME, OPERATOR_DOMAINS, REFUSED_OPERATORS
from weft_proto.tasks import TASKS
from weft_proto.v1 import bundle_pb2
from weft_server.bundle.constant_folding import is_costly_to_open
from weft_server.bundle.graph_fields import verify_fields
from weft_server.errors import BundleError, require

# ONNX Runtime can be told by an environment variable to take session options from this metadata entry.
REFUSED_METADATA = {"ort_config"}

_DECODERS = {
    bundle_pb2.GRAPH_ROLE_DECODER,
    bundle_pb2.GRAPH_ROLE_MIXED,
    bundle_pb2.GRAPH_ROLE_BIDIRECTIONAL,
}
# Which input of GroupQueryAttention is added to its scores.
_BIAS = 10
_NUMBER = re.compile(r"[0-9]{1,15}")
# Operators that look up rows of a table, and what each calls the axis.
_LOOKUPS = {"Gather": "axis", "GatherBlockQuantized": "gather_axis"}
_DATA_TYPES = {data_type: onnx.TensorProto.DataType.Value(name) for data_type, name in ONNX_NAME.items()}


def verify_graphs(directory: Path, manifest: bundle_pb2.BundleManifest) -> frozenset[str]:
    """Refuse a graph that is no ONNX, reads outside the bundle, uses foreign ops, or has other ports than stated.

    Returns the files whose graphs may cost much to open.
    """
    costly = set()
    sizes = {file.path: file.size_bytes for file in manifest.files}
    for graph in manifest.graphs:
        # ONNX Runtime knows its own flatbuffer format by the suffix. Nothing here could look into such a file.
        require(graph.path in sizes and graph.path.endswith(".onnx"), f"graph {graph.path!r} is no listed .onnx file")
        try:
            data = (directory / graph.path).read_bytes()
            verify_fields(data, graph.path)
            model = onnx.load_model_from_string(data, format="protobuf")
        except DecodeError as error:
            raise BundleError(f"{graph.path} is not an ONNX model") from error
        _verify_model(model, graph.path, sizes)
        _verify_embeddings(model, graph, manifest)
        _verify_ports(graph.path, "inputs", graph.inputs, model.graph.input)
        _verify_ports(graph.path, "outputs", graph.outputs, model.graph.output)
        if is_costly_to_open(model):
            costly.add(graph.path)
    return frozenset(costly)


def weight_bytes(path: Path) -> int:
    """Return how many bytes the weights of a graph have, in its file or beside it."""
    model = onnx.load(path, format="protobuf", load_external_data=False)
    return sum(
        math.prod(tensor.dims) * onnx.helper.tensor_dtype_to_np_dtype(tensor.data_type).itemsize
        for tensor in model.graph.initializer
    )


def attends_with_bias(path: Path) -> bool:
    """Whether attention over a cache adds something to its scores: for each place of the cache, in this graph."""
    model = onnx.load(path, format="protobuf", load_external_data=False)
    attending = (node.input for node in model.graph.node if node.op_type == "GroupQueryAttention")
    return any(any(inputs[_BIAS : _BIAS + 1]) for inputs in attending)


def _verify_model(model: onnx.ModelProto, path: str, sizes: dict[str, int]) -> None:
    for entry in model.metadata_props:
        require(entry.key not in REFUSED_METADATA, f"{path} carries session options")
    for message in _messages(model):
        if isinstance(message, onnx.TensorProto):
            _verify_external_data(message, path, sizes)
        elif isinstance(message, onnx.NodeProto | onnx.OperatorSetIdProto | onnx.FunctionProto):
            require(message.domain in OPERATOR_DOMAINS, f"{path} uses ops of domain {message.domain!r}")
        if isinstance(message, onnx.NodeProto):
            require(message.op_type not in REFUSED_OPERATORS, f"{path} uses {message.op_type}")
    # Each may call another one twice. Opening a graph puts all calls in their places.
    require(not model.functions, f"{path} has functions of its own; put them in their places, by onnx.inliner")


def _messages(message: Message) -> Iterator[Message]:
    """Yield every message inside, whatever field it hides in: subgraphs, functions, sparse tensors, training info."""
    yield message
    if isinstance(message, onnx.TensorProto):
        return
    for field, value in message.ListFields():
        if field.message_type is None:
            continue
        for child in [value] if isinstance(value, Message) else value:
            yield from _messages(child)


def _verify_external_data(tensor: onnx.TensorProto, path: str, sizes: dict[str, int]) -> None:
    if not tensor.external_data and tensor.data_location != onnx.TensorProto.EXTERNAL:
        return
    name = f"{path}: external data of tensor {tensor.name!r}"
    entries = {entry.key: entry.value for entry in tensor.external_data}

    require(len(entries) == len(tensor.external_data), f"{name} has a key twice")
    for key in entries.keys() - EXTERNAL_DATA_KEYS:
        raise BundleError(f"{name} has the unknown key {key!r}")

    location = entries.get("location", "")
    require(location in sizes, f"{name} lies in {location!r}, which is not a file of the bundle")

    offset = entries.get("offset", "0")
    length = entries.get("length", "0")
    for number in (offset, length):
        require(_NUMBER.fullmatch(str(number)), f"{name} has offset or length {number!r}")
    end = int(offset) + int(length)
    require(end <= sizes[location], f"{name} ends at byte {end} of {location!r}, which has {sizes[location]}")


def _verify_embeddings(model: onnx.ModelProto, graph: bundle_pb2.Graph, manifest: bundle_pb2.BundleManifest) -> None:
    """Refuse a table that has no row for some id. A device would read whatever lies behind the table."""
    sizes = {tensor.name: tensor.dims[0] for tensor in model.graph.initializer if tensor.dims}
    fields = _vocabularies(graph.role, manifest)
    for node in model.graph.node:
        # Along another axis than 0, no rows of a table are looked up.
        axis = _LOOKUPS.get(node.op_type)
        if axis is None or len(node.input) < 2 or any(each.name == axis and each.i for each in node.attribute):
            continue
        table, ids, *_ = node.input
        if table not in sizes:
            continue
        for field in fields.get(ids, []):
            claimed = getattr(manifest.text, field)
            size = sizes[table]
            require(claimed <= size, f"text.{field} is {claimed}; {graph.path} has a table of {size} ids")


def _vocabularies(role: int, manifest: bundle_pb2.BundleManifest) -> dict[str, list[str]]:
    """Which fields of TextSpec say how many ids there are that an input of a graph may hold."""
    source = ["source_vocab_size"]
    target = ["target_vocab_size"]
    fields = {"input_ids": source, "prompt_ids": source, "target_ids": target}
    if role == bundle_pb2.GRAPH_ROLE_SCORE and TASKS[manifest.task].takes_prompt:
        fields["input_ids"] = source + target
    if role in _DECODERS:
        # A prompt and its answer go in by the same port.
        fields["input_ids"] = source + target if TASKS[manifest.task].takes_prompt else target
    return fields


def _verify_ports(
    path: str, side: str, stated: Iterable[bundle_pb2.Port], actual: Iterable[onnx.ValueInfoProto]
) -> None:
    expected = [(port.name, _DATA_TYPES.get(port.data_type), tuple(port.shape)) for port in stated]
    found = [(value.name, value.type.tensor_type.elem_type, _shape(value)) for value in actual]
    require(len(expected) == len(found), f"{path} has {len(found)} {side}; the manifest says {len(expected)}")
    for one, other in zip(expected, found, strict=True):
        require(one == other, f"{path} has {_port(*other)} among its {side}; the manifest says {_port(*one)}")


def _shape(value: onnx.ValueInfoProto) -> tuple[str, ...]:
    dims = value.type.tensor_type.shape.dim
    # Strings of an ONNX file that are not UTF-8 come as bytes.
    return tuple(str(dim.dim_value if dim.HasField("dim_value") else dim.dim_param) for dim in dims)


def _port(name: str, data_type: int | None, shape: tuple[str, ...]) -> str:
    kinds = {number: kind for kind, number in onnx.TensorProto.DataType.items()}
    kind = kinds.get(data_type or 0, "UNDEFINED")
    return f"{name} {kind}[{', '.join(shape)}]"
