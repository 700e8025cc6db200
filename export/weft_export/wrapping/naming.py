"""The names of a graph's inputs and outputs: those that Weft knows, and how others become them."""

from collections.abc import Mapping

import onnx_ir

from weft_export.errors import CheckpointError
from weft_export.wrapping.adapting import IMAGE_INPUTS, TEXT_INPUTS
from weft_export.wrapping.giving import ALIASES, OUTPUTS
from weft_export.wrapping.onnx_model import OnnxModel

_PORT_NAMES = (*TEXT_INPUTS, *IMAGE_INPUTS, *OUTPUTS)
# What changes no number, and may stand behind a Softmax.
_SAME = frozenset({"Identity", "Cast", "Squeeze", "Reshape", "Flatten"})


def complete(model: onnx_ir.Model, described: OnnxModel, names: Mapping[str, str]) -> dict[str, str]:
    """Return new names {old: new} of inputs and outputs: those that are given, and those that are clear.

    These are clear: what a known exporter calls an output, the one input of pictures, and the one output behind a
    Softmax, or with as many axes as vectors have.
    """
    graph = model.graph
    found = {**names}
    inputs = [str(port.name) for port in graph.inputs if port.name not in graph.initializers]
    if described.row.takes_image and len(inputs) == 1 and inputs[0] not in (*found, *IMAGE_INPUTS):
        found[inputs[0]] = IMAGE_INPUTS[0]
    outputs = {str(port.name): port for port in graph.outputs}
    taken = {*found.values(), *outputs}
    found |= {old: new for old, new in ALIASES.items() if old in outputs and old not in found and new not in taken}
    ((name, port), *others) = outputs.items()
    if not others and name not in (*found, *OUTPUTS):
        new = _of_vectors(port) if described.row.embeds else _of_shares(port)
        if new:
            found[name] = new
    return found


def _of_vectors(port: onnx_ir.Value) -> str:
    axes = 0 if port.shape is None else len(port.shape)
    return {2: "embedding", 3: "last_hidden_state"}.get(axes, "")


def _of_shares(port: onnx_ir.Value) -> str:
    node = port.producer()
    while node is not None and node.op_type in _SAME and node.inputs[0] is not None:
        node = node.inputs[0].producer()
    return "probabilities" if node is not None and node.op_type == "Softmax" else ""


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


def _values(graph: onnx_ir.Graph) -> list[onnx_ir.Value]:
    made = [value for node in graph.all_nodes() for value in node.outputs]
    inner = [value for sub in graph.subgraphs() for value in (*sub.inputs, *sub.initializers.values())]
    return [*made, *inner, *graph.inputs, *graph.initializers.values()]
