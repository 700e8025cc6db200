"""Makes a traced graph small: folds constants, takes out what changes nothing, and shares what is computed twice.

torch's exporter would do the same with all of onnxscript's rules. One of them makes a Split of two Slices. It looks at
each node once for each node: a graph of 26 layers spent four fifths of its tracing on it. No graph of ours has such
Slices.
"""

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


def _folds(node: onnx_ir.Node) -> bool | None:
    """Say no for what widens weights in blocks: they lie narrow in the file. Elsewhere, leave it to the optimizer."""
    if node.op_type != "Cast":
        return None
    source = node.inputs[0]
    is_narrow = source is not None and source.dtype in _NARROW
    return False if is_narrow or any(user.op_type in _IN_BLOCKS for user, _ in node.outputs[0].uses()) else None
