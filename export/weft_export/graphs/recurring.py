"""Puts a Scan of ONNX in the place of each operator that stands for blocks that go through a state."""

from typing import Any

import onnx_ir

from weft_export.layers.state_space import OPERATOR

_AXIS = 1
"""Of blocks, in what a Scan reads and gives."""


def expand_recurrences(model: onnx_ir.Model) -> None:
    """Do so in place: see blocks_through."""
    domain, _, kind = OPERATOR.partition("::")
    for node in [node for node in model.graph if (node.domain, node.op_type) == (domain, kind)]:
        read, last = node.outputs
        scan = onnx_ir.node(
            "Scan",
            list(node.inputs),
            {
                "body": _body(read.dtype),
                "num_scan_inputs": len(node.inputs) - 1,
                "scan_input_axes": [_AXIS] * (len(node.inputs) - 1),
                "scan_output_axes": [_AXIS],
            },
            num_outputs=2,
        )
        model.graph.insert_before(node, [scan])
        for old, new in ((last, scan.outputs[0]), (read, scan.outputs[1])):
            new.shape, new.type = old.shape, old.type
            old.replace_all_uses_with(new, replace_graph_outputs=True)
        model.graph.remove(node, safe=True)


def _body(dtype: Any) -> onnx_ir.Graph:
    """Return what is done with one block."""
    state, left, writes, values, reads = (
        onnx_ir.Value(name=f"each_{name}", type=onnx_ir.TensorType(dtype))
        for name in ("state", "left", "writes", "values", "reads")
    )
    nodes: list[onnx_ir.Node] = []

    def add(kind: str, *inputs: Any) -> Any:
        nodes.append(onnx_ir.node(kind, inputs))
        nodes[-1].outputs[0].type = onnx_ir.TensorType(dtype)
        return nodes[-1].outputs[0]

    read = add("MatMul", reads, state)
    after = add("Add", add("Mul", state, left), add("MatMul", writes, values))
    opsets = {"": 21}
    return onnx_ir.Graph(
        [state, left, writes, values, reads], [after, read], nodes=nodes, opset_imports=opsets, name="each"
    )
