"""Puts a Scan of ONNX in the place of each operator that stands for blocks, or tokens, that go through a state."""

from collections.abc import Callable
from typing import Any

import onnx_ir

from weft_export.layers import selective_state_space, state_space, time_mix

_AXIS = 1
"""Of blocks or tokens, in what a Scan reads and gives."""
_OPSETS = {"": 21}
Add = Callable[..., Any]
"""Puts an operator behind those of a body, and returns what it gives."""
Body = Callable[..., tuple[Any, Any]]
"""Returns the state after a block or token, and what that reads."""


def expand_recurrences(model: onnx_ir.Model) -> None:
    """Do so in place: see blocks_through and tokens_through."""
    for node in [node for node in model.graph if f"{node.domain}::{node.op_type}" in _BODIES]:
        read, last = node.outputs
        ports, given, body = _BODIES[f"{node.domain}::{node.op_type}"]
        inputs = list(node.inputs)
        scanned, shared = inputs[: len(ports)], inputs[len(ports) :]
        assert len(shared) == given, f"{node.op_type} has {len(inputs)} inputs. This is a bug."
        scan = onnx_ir.node(
            "Scan",
            scanned,
            {
                "body": _body(ports, read.dtype, shared, body),
                "num_scan_inputs": len(scanned) - 1,
                "scan_input_axes": [_AXIS] * (len(scanned) - 1),
                "scan_output_axes": [_AXIS],
            },
            num_outputs=2,
        )
        model.graph.insert_before(node, [scan])
        for old, new in ((last, scan.outputs[0]), (read, scan.outputs[1])):
            # A state may be an output of the graph, which is asked for by its name.
            new.name, new.shape, new.type = old.name, old.shape, old.type
            old.replace_all_uses_with(new, replace_graph_outputs=True)
        model.graph.remove(node, safe=True)


def _body(ports: tuple[str, ...], dtype: Any, shared: list[Any], body: Body) -> onnx_ir.Graph:
    """Return what is done with one block or token. What is shared by all is the outer graph's."""
    each = [onnx_ir.Value(name=f"each_{name}", type=onnx_ir.TensorType(dtype)) for name in ports]
    nodes: list[onnx_ir.Node] = []

    def add(kind: str, *inputs: Any, **attributes: int) -> Any:
        nodes.append(onnx_ir.node(kind, inputs, attributes))
        nodes[-1].outputs[0].type = onnx_ir.TensorType(dtype)
        return nodes[-1].outputs[0]

    after, read = body(add, *each, *shared)
    return onnx_ir.Graph(each, [after, read], nodes=nodes, opset_imports=_OPSETS, name="each")


def _block(add: Add, state: Any, left: Any, writes: Any, values: Any, reads: Any) -> tuple[Any, Any]:
    read = add("MatMul", reads, state)
    return add("Add", add("Mul", state, left), add("MatMul", writes, values)), read


def _token(add: Add, state: Any, steps: Any, values: Any, writes: Any, reads: Any, rate: Any) -> tuple[Any, Any]:
    left = add("Exp", add("Mul", steps, rate))
    after = add("Add", add("Mul", state, left), add("Mul", writes, values))
    return after, add("MatMul", reads, after)


def _correction(add: Add, state: Any, left: Any, asked: Any, writes: Any, values: Any, reads: Any) -> tuple[Any, Any]:
    written = add("Concat", add("MatMul", asked, state), values, axis=-2)
    after = add("Add", add("Mul", state, left), add("MatMul", writes, written))
    return after, add("MatMul", reads, after)


_BODIES: dict[str, tuple[tuple[str, ...], int, Body]] = {
    state_space.OPERATOR: (("state", "left", "writes", "values", "reads"), 0, _block),
    selective_state_space.OPERATOR: (("state", "steps", "values", "writes", "reads"), 1, _token),
    time_mix.OPERATOR: (("state", "left", "asked", "writes", "values", "reads"), 0, _correction),
}
"""Of each operator what goes through, how many inputs are the same for all, and what is done with one."""
