"""What stands in for PagedAttention on a CPU, one operator alone: its scale."""

import math

import numpy as np
import pytest
from onnx import TensorProto, helper

from weft_export.verification.paged_stand_in import call_stand_ins, inline
from weft_export.verification.session import onnxruntime

PORTS = {
    "qkv": (TensorProto.FLOAT, [2, 6]),
    "keys": (TensorProto.FLOAT, [1, 4, 1, 2]),
    "values": (TensorProto.FLOAT, [1, 4, 1, 2]),
    "ends": (TensorProto.INT32, [2]),
    "past": (TensorProto.INT32, [1]),
    "table": (TensorProto.INT32, [1, 1]),
    "slots": (TensorProto.INT32, [2]),
}


@pytest.mark.parametrize("scale", [None, 0.25])
def test_scores_are_scaled_as_the_operator_says(scale):
    """Or by the root of a head's width, where it does not say. One row of two tokens, a head of two numbers."""
    given = ["qkv", "", "", "keys", "values", "ends", "past", "table", "", "", "slots"]
    scaled = {} if scale is None else {"scale": scale}
    node = helper.make_node(
        "PagedAttention",
        given,
        ["out", "keys_out", "values_out"],
        domain="com.microsoft",
        num_heads=1,
        kv_num_heads=1,
        **scaled,
    )
    inputs = [helper.make_tensor_value_info(name, *port) for name, port in PORTS.items()]
    out = helper.make_tensor_value_info("out", TensorProto.FLOAT, [2, 2])
    graph = helper.make_graph([node], "attention", inputs, [out])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)
    call_stand_ins(model, model.graph.node)
    session = onnxruntime().InferenceSession(inline(model).SerializeToString(), providers=["CPUExecutionProvider"])

    rows = np.random.default_rng(3).normal(0, 2, (2, 3, 2)).astype(np.float32)
    fed = {name: np.zeros(shape, helper.tensor_dtype_to_np_dtype(kind)) for name, (kind, shape) in PORTS.items()}
    fed |= {"qkv": rows.reshape(2, 6), "ends": np.array([0, 2], np.int32), "slots": np.array([0, 1], np.int32)}
    (found,) = session.run(["out"], fed)

    query, key, value = rows.swapaxes(0, 1)
    weights = np.exp(query[1] @ key.T * (scale or 1 / math.sqrt(2)))
    np.testing.assert_allclose(found, [value[0], weights @ value / weights.sum()], rtol=1e-5)
