"""Makes a traced graph small: folds constants, drops what changes nothing, shares twins, fuses residual norms.

torch's exporter would do the same with all of onnxscript's rules. One of them makes a Split of two Slices. It looks at
each node once for each node: a graph of 26 layers spent four fifths of its tracing on it. No graph of ours has such
Slices.
"""

from dataclasses import dataclass

import onnx_ir
from onnx_ir.passes import PassManager, Sequential, common
from onnxscript import optimizer
from onnxscript.rewriter import RewritePass
from onnxscript.rewriter.rules import common as rules

# Twice: what one rule leaves may be what another looks for.
_TIMES = 2
_RULES = (
    rules.add_0_rule,
    rules.sub_0_rule,
    rules.mul_by_1_rule,
    rules.div_by_1_rule,
    rules.dropout_inference_rule,
    rules.two_reshapes_matmul_reshape_rule,
    rules.one_reshape_matmul_reshape_rule,
    rules.cast_constant_of_shape_rule,
    rules.cast_constant_of_shape_without_value_rule,
    rules.collapse_slice_rule,
    rules.collapse_slice2_rule,
    rules.materialize_reshape_shape_rule,
    rules.cast_cast_rule,
    rules.no_op_cast_rule,
    rules.no_op_expand_rule,
    rules.flatten_to_reshape_rule,
    rules.reshape_reshape_rule,
    rules.squeeze_reshape_1d_rule,
    rules.no_op_transpose_rule,
    rules.transpose_transpose_rule,
    rules.unsqueeze_unsqueeze_rule,
    rules.fuse_batchnorm_into_conv_rule,
    rules.remove_optional_bias_from_conv_rule,
    rules.remove_optional_bias_from_gemm_rule,
)


# Operators whose weights lie in blocks, and types that levels and scales of others are kept in.
_IN_BLOCKS = {"MatMulNBits", "GatherBlockQuantized"}
_NARROW = {onnx_ir.DataType.FLOAT8E4M3FN, onnx_ir.DataType.UINT8}


def simplify(model: onnx_ir.Model) -> None:
    """Simplify a traced model in place. Its inputs and outputs keep their names and their order."""
    common.InlinePass()(model)
    for _ in range(_TIMES):
        optimizer.fold_constants_ir(model, onnx_shape_inference=True, should_fold=_folds)
        PassManager([RewritePass(_RULES), common.RemoveUnusedNodesPass(), common.RemoveUnusedOpsetsPass()])(model)
    Sequential(
        common.RemoveUnusedFunctionsPass(),  # type: ignore[no-untyped-call]
        common.LiftConstantsToInitializersPass(lift_all_constants=True, size_limit=0),
        common.LiftSubgraphInitializersToMainGraphPass(),
        common.DeduplicateInitializersPass(),
        common.CommonSubexpressionEliminationPass(),
        common.OutputFixPass(),
        common.NameFixPass(),
    )(model)
    _fuse_residual_norms(model)


def _folds(node: onnx_ir.Node) -> bool | None:
    """Say no for what widens weights in blocks: they lie narrow in the file. Elsewhere, leave it to the optimizer."""
    if node.op_type != "Cast":
        return None
    source = node.inputs[0]
    is_narrow = source is not None and source.dtype in _NARROW
    return False if is_narrow or any(user.op_type in _IN_BLOCKS for user, _ in node.outputs[0].uses()) else None


_OPERATOR = "SkipSimplifiedLayerNormalization"


def _fuse_residual_norms(model: onnx_ir.Model) -> None:
    """Replace each sum of two tensors of a shape and the RMSNorm of that sum: a device computes both in one kernel.

    ONNX Runtime does so itself only for LayerNorm, and where nothing else reads the sum, which in a pre-norm layer the
    next sum does. The pattern has the casts of half precision: graphs for CPUs, where the one operator is slower than
    the two, stay as they are.
    """
    for add in list(model.graph):
        if add.op_type == "Add" and _is_residual(add):
            norm = _norm_of(add.outputs[0])
            if norm is not None:
                _fuse(model.graph, add, norm)


@dataclass(frozen=True)
class _Norm:
    """layers/style.py: RmsNorm in a graph of half precision, from the cast of what it is given to its result."""

    nodes: list[onnx_ir.Node]
    weight: onnx_ir.Value
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
    """Return x / sqrt(mean(x^2) + epsilon) * weight behind the cast of x, if that is what stands there."""
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
    epsilon, weight = constants
    if epsilon.const_value is None or weight.const_value is None:
        return None
    return _Norm(nodes, weight, float(epsilon.const_value.numpy()))


def _fuse(graph: onnx_ir.Graph, add: onnx_ir.Node, norm: _Norm) -> None:
    attributes = {"epsilon": norm.epsilon}
    # Of four outputs the first is the norm and the last the sum. The others are for training.
    node = onnx_ir.node(_OPERATOR, [*add.inputs, norm.weight], attributes, domain="com.microsoft", num_outputs=4)
    normed, *unused, total = node.outputs
    for value in unused:
        value.name = ""
    old = [norm.nodes[-1].outputs[0], add.outputs[0]]
    onnx_ir.convenience.replace_nodes_and_values(graph, add, [add, *norm.nodes], [node], old, [normed, total])
