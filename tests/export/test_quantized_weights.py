"""The rounded weights that stand in the graphs."""

import numpy as np
import onnx
import pytest
from onnx import numpy_helper
from tiny import CHECKPOINTS, INT8

from weft_export.layers.quantized_linear import QuantisedEmbedding, QuantisedLinear
from weft_export.quantization.integer_products import quantised


@pytest.mark.parametrize("name", INT8)
def test_every_rounded_weight_stands_in_a_graph_bit_for_bit(name, int8_repository):
    """Each weight and scale of a product is an initializer as it is: parity at int8 would let a wrong column pass."""
    bundle = int8_repository / f"{name}-int8" / "1"
    written = {
        contents(numpy_helper.to_array(tensor))
        for path in bundle.glob("*.onnx")
        for tensor in onnx.load(path).graph.initializer
    }
    products = [
        (path, module)
        for path, module in quantised(CHECKPOINTS[name]()).model.named_modules()
        if isinstance(module, QuantisedLinear | QuantisedEmbedding)
    ]

    assert products
    for path, module in products:
        weight = module.columns if isinstance(module, QuantisedLinear) else module.rows
        assert contents(weight.numpy()) in written, path
        assert contents(module.scale.numpy()) in written, path


def contents(array):
    """What an array holds, whatever its shape."""
    return array.dtype, np.ascontiguousarray(array).tobytes()
