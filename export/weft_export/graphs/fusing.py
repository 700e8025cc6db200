"""A residual sum and the RMSNorm behind it as one operator, which a device computes in one kernel.

ONNX Runtime does so itself only for LayerNorm, and where nothing else reads the sum, which in a pre-norm layer the next
sum does. The pattern has the casts of half precision: graphs for CPUs, where the one operator is slower than the two,
stay as they are.
"""

from dataclasses import dataclass

import onnx_ir

_OPERATOR = "SkipSimplifiedLayerNormalization"


def fuse_residual_norms(model: onnx_ir.Model) -> None:
    """Replace each sum of two tensors of a shape and the norm of that sum, in place."""
    for add in list(model.graph):
        if add.op_type == "Add" and _is_residual(add):
            norm = _norm_of(add.outputs[0])
            if norm is not None:
                _fuse(model.graph, add, norm)


@dataclass(frozen=True)
class _Norm:
    """layers/norms.py: RmsNorm in a graph of half precision, from the cast of what it is given to its result."""

    nodes: list[onnx_ir.Node]
    gain: onnx_ir.Value
    epsilon: float


def _is_residual(add: onnx_ir.Node) -> bool:
    left, right = add.inputs
    if left is None or right is None or left.const_value is not None or right.const_value is not None:
        return False
    return left.shape is not None and len(left.shape) == 3 and left.shape == right.shape


def _norm_of(total: onnx_ir.Value) -> _Norm | None:
    """Return the norm of a sum, if one follows."""
    for user, _ in total.uses():
        if user.op_type == "Cast" and user.outputs[0].dtype == onnx_ir.DataType.FLOAT:
            found = _behind(user)
            if found is not None:
                return found
    return None


def _behind(cast: onnx_ir.Node) -> _Norm | None:
    """Return x / sqrt(mean(x^2) + epsilon) * gain behind the cast of x, if that is what stands there."""
    users = {user.op_type: user for user, _ in cast.outputs[0].uses()}
    if set(users) != {"Pow", "Div"}:
        return None
    nodes, constants = [cast, users["Pow"]], []
    for operator in ("ReduceMean", "Add", "Sqrt", "Div", "Cast", "Mul"):
        given = nodes[-1].outputs[0]
        readers = [user for user, _ in given.uses()]
        if len(readers) != 1 or readers[0].op_type != operator:
            return None
        nodes += readers
        if operator in ("Add", "Mul"):
            constants += [each for each in readers[0].inputs if each is not None and each is not given]
    epsilon, gain = constants
    if epsilon.const_value is None or gain.const_value is None:
        return None
    return _Norm(nodes, gain, float(epsilon.const_value.numpy()))


def _fuse(graph: onnx_ir.Graph, add: onnx_ir.Node, norm: _Norm) -> None:
    attributes = {"epsilon": norm.epsilon}
    # Of four outputs the first is the norm and the last the sum. The others are for training.
    node = onnx_ir.node(_OPERATOR, [*add.inputs, norm.gain], attributes, domain="com.microsoft", num_outputs=4)
    normed, *unused, total = node.outputs
    for value in unused:
        value.name = ""
    old = [norm.nodes[-1].outputs[0], add.outputs[0]]
    onnx_ir.convenience.replace_nodes_and_values(graph, add, [add, *norm.nodes], [node], old, [normed, total])
