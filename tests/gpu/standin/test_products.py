"""Products with weights in blocks: which kernel multiplies depends on the number of rows, and all have to agree."""

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper
from standin import WHY_NOT, counting, verify_clean

from weft_server.runtime.device import Device
from weft_server.runtime.session import Session, verify_device

pytestmark = [pytest.mark.gpu, pytest.mark.slow, pytest.mark.skipif(bool(WHY_NOT), reason=WHY_NOT or "it is there")]
CUDA = Device("cuda", in_place=False)


@pytest.mark.parametrize(("width", "columns"), [(64, 96), (256, 128), (72, 100)])
@pytest.mark.parametrize(("bits", "size"), [(4, 32), (8, 64)], ids=["4 bits", "8 bits"])
def test_products_are_those_of_the_weights(bits, size, width, columns):
    """One row, few rows and many, with a bias, and rows that are looked up: numpy's, within float16."""
    rng = np.random.default_rng(0)
    num_blocks = -(-width // size)
    packed = rng.integers(0, 256, (columns, num_blocks, size * bits // 8), dtype=np.uint8)
    scale = rng.uniform(0.01, 0.1, (columns, num_blocks)).astype(np.float16)
    bias = rng.normal(size=columns).astype(np.float16)
    levels = packed if bits == 8 else np.stack([packed & 15, packed >> 4], axis=-1).reshape(columns, num_blocks, size)
    weights = (levels.astype(np.float32) - 2 ** (bits - 1)) * scale[..., None]
    product = {"K": width, "N": columns, "bits": bits, "block_size": size}
    looked_up = {"gather_axis": 0, "quantize_axis": 2, "block_size": size, "bits": bits}
    graph = helper.make_graph(
        [
            helper.make_node("MatMulNBits", ["rows", "packed", "scale"], ["wide"], domain="com.microsoft", **product),
            helper.make_node("Add", ["wide", "bias"], ["products"]),
            helper.make_node(
                "GatherBlockQuantized", ["packed", "ids", "scales"], ["found"], domain="com.microsoft", **looked_up
            ),
        ],
        "products",
        [
            helper.make_tensor_value_info("rows", TensorProto.FLOAT16, ["n", width]),
            helper.make_tensor_value_info("ids", TensorProto.INT64, ["n"]),
        ],
        [
            helper.make_tensor_value_info("products", TensorProto.FLOAT16, ["n", columns]),
            helper.make_tensor_value_info("found", TensorProto.FLOAT16, ["n", num_blocks, size]),
        ],
        [
            onnx.numpy_helper.from_array(array, name)
            for name, array in {"packed": packed, "scale": scale, "scales": scale[..., None], "bias": bias}.items()
        ],
    )
    opsets = [helper.make_opsetid("", 21), helper.make_opsetid("com.microsoft", 1)]
    verify_device(CUDA)
    session = Session(helper.make_model(graph, opset_imports=opsets, ir_version=10).SerializeToString(), 1, CUDA)
    for num_rows in (1, 2, 5, 9, 16, 17, 40):
        rows, ids = rng.normal(size=(num_rows, width)).astype(np.float16), rng.integers(0, columns, num_rows)
        with counting() as counts:
            said = session.run({"rows": rows, "ids": ids})
        verify_clean(counts)
        expected = rows.astype(np.float32) @ weights.reshape(columns, -1)[:, :width].T + bias
        assert float(np.abs(said["products"] - expected).max()) < 2e-3 * float(np.abs(expected).max())
        np.testing.assert_allclose(said["found"], weights[ids], rtol=1e-3)
