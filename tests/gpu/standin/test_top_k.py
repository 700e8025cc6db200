"""The best of a real vocabulary's logits: TopK takes other kernels there than in a tiny one."""

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper
from standin import WHY_NOT, counting, verify_clean

from weft_server.runtime.device import Device
from weft_server.runtime.session import Session, Value, verify_device

pytestmark = [pytest.mark.gpu, pytest.mark.slow, pytest.mark.skipif(bool(WHY_NOT), reason=WHY_NOT or "it is there")]
CUDA = Device("cuda", in_place=False)
BEST = 64


@pytest.mark.parametrize("captures", [False, True], ids=["plain", "captured"])
@pytest.mark.parametrize("vocab", [32_000, 128_256])
@pytest.mark.parametrize("dtype", [np.float32, np.float16])
def test_the_best_of_a_real_vocabulary(dtype, vocab, captures):
    """They are numpy's, the lower id first where logits are equal. At half precision many are."""
    rows = 3
    kind = int(helper.np_dtype_to_tensor_dtype(np.dtype(dtype)))
    graph = helper.make_graph(
        [helper.make_node("TopK", ["logits", "count"], ["best", "ids"], axis=1)],
        "best",
        [helper.make_tensor_value_info("logits", kind, ["rows", vocab])],
        [
            helper.make_tensor_value_info("best", kind, ["rows", BEST]),
            helper.make_tensor_value_info("ids", TensorProto.INT64, ["rows", BEST]),
        ],
        [onnx.numpy_helper.from_array(np.array([BEST]), "count")],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)
    verify_device(CUDA)
    session = Session(model.SerializeToString(), 1, CUDA, captures=captures)
    read = np.random.default_rng(3).normal(size=(rows, vocab)).astype(dtype)
    logits = Value.like(read, CUDA)
    best, ids = Value((rows, BEST), kind, CUDA), Value((rows, BEST), TensorProto.INT64, CUDA)
    bound = session.bind({"logits": logits.block}, {"best": best.block, "ids": ids.block})
    logits.send(read)
    with counting() as counts:
        bound.capture()
        bound.run()
    verify_clean(counts)
    expected = np.argsort(-read.astype(np.float32), axis=1, kind="stable")[:, :BEST]
    assert expected.tolist() == ids.fetch().tolist()
    assert np.take_along_axis(read, expected, 1).tolist() == best.fetch().tolist()
