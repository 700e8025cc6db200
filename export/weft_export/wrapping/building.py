"""Nodes for a graph, one after the other: each with one output, by a name that no other value has."""

from collections.abc import Sequence

import onnx_ir

INTEGERS = (onnx_ir.DataType.INT64, onnx_ir.DataType.INT32)
FLOATS = (onnx_ir.DataType.FLOAT, onnx_ir.DataType.FLOAT16)


class Nodes:
    """Inputs and nodes that a graph gets: `nodes` in the order in which they run."""

    def __init__(self, graph: onnx_ir.Graph, prefix: str) -> None:
        """Begin. The names of values begin with the prefix."""
        self.opset = graph.opset_imports.get("", 0)
        self.prefix = prefix
        self.inputs: list[onnx_ir.Value] = []
        self.nodes: list[onnx_ir.Node] = []

    def input(self, name: str, dtype: onnx_ir.DataType, shape: Sequence[str | int]) -> onnx_ir.Value:
        """Add an input port."""
        port = onnx_ir.Value(name=name, type=onnx_ir.TensorType(dtype), shape=onnx_ir.Shape(shape))
        self.inputs.append(port)
        return port

    def add(self, operator: str, *inputs: onnx_ir.Value, **attributes: int | list[int]) -> onnx_ir.Value:
        """Add a node. Axes of a reduction are an input where the graph's opset has them there."""
        if operator.startswith("Reduce") and self.opset >= _AXES_ARE_INPUTS:
            inputs = (*inputs, self.constant(attributes.pop("axes"), onnx_ir.DataType.INT64))
        node = onnx_ir.node(operator, inputs, attributes=attributes, name=f"{self.prefix}.{len(self.nodes)}.{operator}")
        return self._added(node)

    def constant(self, value: float | list[int], dtype: onnx_ir.DataType) -> onnx_ir.Value:
        """Add a number, or a list of them."""
        return self._added(onnx_ir.node("Constant", [], attributes={"value": onnx_ir.tensor(value, dtype=dtype)}))

    def _added(self, node: onnx_ir.Node) -> onnx_ir.Value:
        node.outputs[0].name = f"{self.prefix}.{len(self.nodes)}"
        self.nodes.append(node)
        return node.outputs[0]


# ReduceL2, ReduceMax and others. ReduceSum has them there since opset 13, and is not made here.
_AXES_ARE_INPUTS = 18
