"""The end of a decoder's graph, without the decoder."""

import numpy as np
import onnx
from onnx import TensorProto, helper

FLOAT, INT64 = TensorProto.FLOAT, TensorProto.INT64


def tail(vocab, num_best=64, *, in_groups=False):
    """The end of a decoder: its logits as they come, the best of them and the normaliser."""
    nodes = [
        helper.make_node("Identity", ["product"], ["logits"]),
        helper.make_node("TopK", ["product" if in_groups else "logits", "count"], ["topk_logits", "topk_ids"], axis=1),
        helper.make_node("LogSoftmax", ["logits"], ["log_probs"], axis=1),
        helper.make_node("GatherElements", ["log_probs", "topk_ids"], ["log_prob"], axis=1),
        helper.make_node("Sub", ["topk_logits", "log_prob"], ["totals"]),
        helper.make_node("Slice", ["totals", "zero", "one", "one"], ["total"]),
        helper.make_node("Squeeze", ["total", "one"], ["logsumexp"]),
    ]
    constants = {"count": np.array([num_best]), "zero": np.array([0]), "one": np.array([1])}
    graph = helper.make_graph(
        nodes,
        "tail",
        [helper.make_tensor_value_info("product", FLOAT, ["rows", vocab])],
        [
            helper.make_tensor_value_info("topk_logits", FLOAT, ["rows", num_best]),
            helper.make_tensor_value_info("topk_ids", INT64, ["rows", num_best]),
            helper.make_tensor_value_info("logsumexp", FLOAT, ["rows"]),
            helper.make_tensor_value_info("logits", FLOAT, ["rows", vocab]),
        ],
        [onnx.numpy_helper.from_array(array, name) for name, array in constants.items()],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)


def weights_of(logits, temperatures):
    """What all tokens of each row weigh, in float64."""
    gaps = logits.astype(np.float64) - logits.max(axis=1, keepdims=True)
    return np.exp(gaps / np.float32(temperatures).astype(np.float64)[:, None]).sum(axis=1)
