"""Where the weights of a bundle's graphs lie: a graph that repeats a model reads the weights of those before it."""

import hashlib
from pathlib import Path

import numpy as np
import onnx
import onnx_ir
import torch
from onnx_ir import external_data

from weft_proto.v1 import bundle_pb2

REPEATING = (
    bundle_pb2.GRAPH_ROLE_MIXED,
    bundle_pb2.GRAPH_ROLE_BIDIRECTIONAL,
    bundle_pb2.GRAPH_ROLE_EXPLAIN,
)
"""The roles of graphs that compute with the weights of others once more."""
# Smaller ones stand in the .onnx file itself: onnx_ir's own bound when it writes weights into a file.
_INLINE_BYTES = 256

Place = tuple[str, int]
"""A file of the bundle, and an offset in it."""


class WeightFiles:
    """Writes the graphs of one bundle, and knows what lies where."""

    def __init__(self) -> None:
        self._places: dict[bytes, Place] = {}

    def save(self, program: torch.onnx.ONNXProgram, path: Path, role: bundle_pb2.GraphRole.ValueType) -> None:
        """Write a graph, and beside it in <file_name>.data what of its weights no graph before it has."""
        if role in REPEATING:
            self._save_repeating(program.model, path)
        else:
            program.save(path, external_data=True)
            self._note(path)

    def _note(self, path: Path) -> None:
        for tensor in onnx.load(path, load_external_data=False).graph.initializer:
            place = {entry.key: entry.value for entry in tensor.external_data}
            if place:
                # Read back: there they lie in order, and many of the model are transposed.
                location, offset = place["location"], int(place.get("offset", "0"))
                with (path.parent / location).open("rb") as file:
                    file.seek(offset)
                    content = file.read(int(place["length"]))
                self._places.setdefault(hashlib.sha256(content).digest(), (location, offset))

    def _save_repeating(self, model: onnx_ir.Model, path: Path) -> None:
        _turn_weights(model.graph)
        own = []
        for value in model.graph.initializers.values():
            weight = value.const_value
            if weight is None or weight.nbytes <= _INLINE_BYTES:
                continue
            place = self._places.get(_digest(weight))
            if place is None:
                own.append(value)
                continue
            location, offset = place
            value.const_value = onnx_ir.ExternalTensor(
                location,
                offset,
                weight.nbytes,
                weight.dtype,
                shape=onnx_ir.Shape(weight.shape.numpy()),
                name=value.name or "",
                base_dir=path.parent,
            )
        weights = [value.const_value for value in own if value.const_value is not None]
        if weights:
            written = external_data.convert_tensors_to_external(weights, path.parent, f"{path.name}.data")
            for value, tensor in zip(own, written, strict=True):
                value.const_value = tensor
        onnx_ir.save(model, path)


def _turn_weights(graph: onnx_ir.Graph) -> None:
    """Put a transposed weight in the place of each operator that transposes one.

    torch's exporter does so only to a weight that is read once. EXPLAIN reads the one of queries and keys twice.
    """
    for node in list(graph):
        source = node.inputs[0] if node.op_type == "Transpose" else None
        weight = source.const_value if source is not None else None
        if source is None or weight is None or len(weight.shape) != 2:
            continue
        value = onnx_ir.val(f"{source.name}.turned", const_value=onnx_ir.Tensor(weight.numpy().T))
        node.outputs[0].replace_all_uses_with(value)
        graph.remove(node, safe=True)
        graph.register_initializer(value)
        if not source.uses():
            del graph.initializers[str(source.name)]


def _digest(weight: onnx_ir.TensorProtocol) -> bytes:
    """Return what is equal for equal bytes alone."""
    content = np.ascontiguousarray(weight.numpy()).reshape(-1).view(np.uint8)
    return hashlib.sha256(content.data).digest()
