"""An ONNX file that others made, read as data: nothing in it is run, and nothing outside its folder is opened.

What external data can do to a loader: https://github.com/onnx/onnx/blob/main/docs/ExternalDataSecurity.md
"""

import math
from collections.abc import Iterator
from pathlib import Path

import onnx
import onnx_ir
from google.protobuf.message import DecodeError, Message
from onnx import version_converter

from weft_export.checkpoints.files import check_regular
from weft_export.errors import CheckpointError
from weft_proto.bundle_rules import EXTERNAL_DATA_KEYS, OPERATOR_DOMAINS, REFUSED_OPERATORS

# What protobuf can hold in one message.
MAX_FILE_BYTES = 2**31 - 1
# They run a part of a graph again and again, as often as a number says that nobody has seen.
_LOOPS = frozenset({"Loop", "Scan", "SequenceMap", "BeamSearch", "GreedySearch", "Sampling", "WhisperBeamSearch"})
MAX_NUMBERS = 2**40
"""Of one tensor."""
LEAST_OPSET = 13
"""Since this one, Softmax is over one axis, and axes of other operators are inputs. Older graphs are brought to it."""
OLDEST_OPSET = 7
"""What onnx.version_converter begins with."""


def read_onnx(path: Path) -> onnx_ir.Model:
    """Return the model in an .onnx file. Weights in files beside it are mapped when they are used.

    Raises:
        CheckpointError: There are four cases:
            1. It cannot be read, or is no ONNX model.
            2. It has operators that are not ONNX's or com.microsoft's, or that loop.
            3. Its opset is older than OLDEST_OPSET, or an operator of it cannot be brought to LEAST_OPSET.
            4. Its weights lie elsewhere than in regular files of its own folder. A link out of it is elsewhere.
    """
    size = check_regular(path)
    if size > MAX_FILE_BYTES:
        raise CheckpointError(f"{path} has {size} bytes; at most {MAX_FILE_BYTES} can be read: keep weights beside it")
    try:
        model = onnx.load(path, format="protobuf", load_external_data=False)
    except (DecodeError, OSError) as error:
        raise CheckpointError(f"{path} is not an ONNX model: {error}") from error
    if not model.graph.output:
        raise CheckpointError(f"{path} is not an ONNX model: it has no graph with outputs")
    if model.functions:
        # Forty that call the next one twice are a thousand gigabytes of nodes.
        raise CheckpointError(f"{path} has functions of its own: put them in their places, by onnx.inliner")
    if not model.graph.node:
        raise CheckpointError(f"{path} has no nodes: nothing is computed")
    for message in _messages(model):
        _check(path, message)
    opset = max((entry.version for entry in model.opset_import if entry.domain in ("", "ai.onnx")), default=0)
    if opset < LEAST_OPSET:
        model = _renewed(path, model, opset)
    del model.metadata_props[:]
    try:
        read = onnx_ir.from_proto(model)
    except Exception as error:  # a graph may be broken in any way
        raise CheckpointError(f"{path} is not a whole ONNX model: {error}") from error
    onnx_ir.external_data.set_base_dir(read.graph, path.absolute().parent)
    return read


def num_weights(model: onnx_ir.Model) -> int:
    """Return how many numbers a model's weights hold."""
    weights = (value.const_value for value in model.graph.initializers.values())
    return sum(weight.size for weight in weights if weight is not None)


def _renewed(path: Path, model: onnx.ModelProto, opset: int) -> onnx.ModelProto:
    """Return a graph of an old opset in one that is served. Its answers are compared with the old one's later."""
    if opset < OLDEST_OPSET:
        raise CheckpointError(f"{path} has opset {opset}; {OLDEST_OPSET} or newer is needed: export it again")
    try:
        return version_converter.convert_version(model, LEAST_OPSET)
    except Exception as error:  # of C++: an operator that it does not know, or a graph that is none
        reason = str(error).strip().splitlines()[-1]
        raise CheckpointError(
            f"{path} has opset {opset}, and cannot be brought to {LEAST_OPSET}: {reason:.300}"
        ) from error


def _check(path: Path, message: Message) -> None:
    if isinstance(message, onnx.NodeProto | onnx.OperatorSetIdProto | onnx.FunctionProto):
        if message.domain not in OPERATOR_DOMAINS:
            what = f"the operator {message.op_type}" if isinstance(message, onnx.NodeProto) else "operators"
            known = "those of ONNX and of com.microsoft are served"
            raise CheckpointError(f"{path} has {what} of the domain {message.domain!r}; {known}")
        if isinstance(message, onnx.NodeProto) and message.op_type in REFUSED_OPERATORS | _LOOPS:
            why = "nobody can tell how long a loop takes" if message.op_type in _LOOPS else "it reads a file"
            raise CheckpointError(f"{path} has the operator {message.op_type}, which is not served: {why}")
    elif isinstance(message, onnx.TensorProto):
        if min(message.dims, default=0) < 0 or math.prod(message.dims) > MAX_NUMBERS:
            raise CheckpointError(f"{path}: the tensor {message.name!r:.80} has the sizes {list(message.dims)!s:.80}")
        _check_external(path, message)


def _check_external(path: Path, tensor: onnx.TensorProto) -> None:
    if tensor.data_location != onnx.TensorProto.EXTERNAL and not tensor.external_data:
        return
    entries = {entry.key: entry.value for entry in tensor.external_data}
    name = f"{path}: the tensor {tensor.name!r:.80}"
    # Newer exporters note a digest, which nobody here needs.
    if unknown := entries.keys() - EXTERNAL_DATA_KEYS - {"checksum"}:
        raise CheckpointError(f"{name} has external data with the unknown key {min(unknown)!r:.80}")
    location = entries.get("location", "")
    if not location or Path(location).name != location:
        raise CheckpointError(f"{name} lies in {location!r:.80}; weights must be in files beside the .onnx file")
    size = check_regular(path.parent / location)
    # A link could bring any file of this machine into the bundle.
    if not (path.parent / location).resolve().is_relative_to(path.parent.resolve()):
        raise CheckpointError(
            f"{name} lies in {location!r:.80}, which links to a file outside the folder of the .onnx file: copy"
            " that file beside it"
        )
    try:
        offset, length = (int(entries.get(key, "0")) for key in ("offset", "length"))
    except ValueError as error:
        raise CheckpointError(f"{name} has an offset or a length that is no number") from error
    if min(offset, length) < 0:
        raise CheckpointError(f"{name} has offset {offset} and length {length}; neither may be below 0")
    if offset + length > size:
        raise CheckpointError(f"{name} ends at byte {offset + length} of {location}, which has {size}")


def _messages(message: Message) -> Iterator[Message]:
    """Yield every message inside: subgraphs, functions, sparse tensors."""
    yield message
    if isinstance(message, onnx.TensorProto):
        return
    for descriptor, value in message.ListFields():
        if descriptor.message_type is None:
            continue
        for child in [value] if isinstance(value, Message) else value:
            yield from _messages(child)
