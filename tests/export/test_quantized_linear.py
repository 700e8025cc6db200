"""Products in 8-bit integers: what is rounded, and that ONNX Runtime and torch agree to the bit."""

import io

import numpy as np
import onnx
import onnxruntime
import pytest
import torch
from torch import nn

from weft_export.layers.quantized_linear import LEVELS, QuantisedEmbedding, QuantisedLinear, quantise
from weft_proto.session_entries import SESSION_ENTRIES

# Above 1024, sums of products need more than float32's 24 bits.
WIDTHS = [32, 1024, 2047]


class _Shared(nn.Module):
    """Two products of the same activations."""

    def __init__(self, width):
        super().__init__()
        self.query = QuantisedLinear(nn.Linear(width, 40))
        self.key = QuantisedLinear(nn.Linear(width, 24, bias=False))

    def forward(self, x):
        return self.query(x), self.key(x)


def exported(module, example):
    """Return an .onnx of a module whose first two axes are free."""
    file = io.BytesIO()
    axes = ({0: "batch", 1: "seq"},)
    program = torch.onnx.export(module, (example,), dynamic_shapes=axes, opset_version=21, dynamo=True, verbose=False)
    program.save(file)
    return file.getvalue()


def opened(model, optimised=None):
    """Open a session, which writes what ONNX Runtime makes of the graph into the file `optimised`."""
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    options.log_severity_level = 3
    for name, value in SESSION_ENTRIES.items():
        options.add_session_config_entry(name, value)
    if optimised is not None:
        options.optimized_model_filepath = str(optimised)
    return onnxruntime.InferenceSession(model, options, providers=["CPUExecutionProvider"])


def rows_of(count, width):
    """Rows of very different sizes; one of zeros, one with an outlier, and one that is all ties between levels."""
    x = torch.randn(count, 1, width) * 10.0 ** torch.arange(count).remainder(7).sub(3)[:, None, None]
    if count > 2:
        x[0] = 0
        x[1, 0, 0] = 1e4
        x[2] = torch.arange(width).remainder(LEVELS).add(0.5)
        x[2, 0, -1] = LEVELS
    return x


@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::FutureWarning")
@pytest.mark.parametrize("width", WIDTHS)
def test_onnx_runtime_computes_what_torch_does_in_any_crowd(width):
    """A product has torch's bits in ONNX Runtime, and a row's bits are the same alone and among 1 to 64 others."""
    module = _Shared(width).eval()
    session = opened(exported(module, torch.randn(2, 3, width)))
    (name,) = (port.name for port in session.get_inputs())

    for count in (1, 2, 3, 5, 8, 16, 31, 32, 33, 64):
        x = rows_of(count, width)
        together = session.run(None, {name: x.numpy()})
        for expected, actual in zip(module(x), together, strict=True):
            assert np.array_equal(expected.numpy(), actual)
        for row in range(count):
            for whole, alone in zip(together, session.run(None, {name: x[row : row + 1].numpy()}), strict=True):
                assert np.array_equal(whole[row], alone[0])
        # As a row of many positions, which an encoder and a prefill are.
        for whole, part in zip(together, session.run(None, {name: x.transpose(0, 1).numpy()}), strict=True):
            assert np.array_equal(whole[:, 0], part[0])


@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::FutureWarning")
def test_shared_activations_are_rounded_once(tmp_path):
    """Two products of the same x share one pass of rounding, and what ONNX Runtime runs is what was written."""
    opened(exported(_Shared(64).eval(), torch.randn(2, 3, 64)), tmp_path / "optimised.onnx")
    types = [node.op_type for node in onnx.load(tmp_path / "optimised.onnx").graph.node]

    assert 1 == types.count("QuantizeLinear")
    assert 2 == types.count("MatMulIntegerToFloat")
    assert 1 == types.count("Expand")
    assert set() == {"DynamicQuantizeMatMul", "DynamicQuantizeLinear"} & set(types)


def test_rounding_is_to_the_nearest_level():
    """Each row's largest value is LEVELS steps, every other is off by half a step at most, and zeros stay zeros."""
    rows = torch.randn(5, 64)
    rows[3] = 0
    levels, scale = quantise(rows)

    assert [LEVELS, LEVELS, LEVELS, 0, LEVELS] == levels.abs().amax(dim=1).tolist()
    assert ((rows - levels * scale).abs() <= scale * 0.5001).all()


def test_embedding_and_projection_are_one_table():
    """A token's vector, and its column in the projection, are the same rounded numbers."""
    embedding = QuantisedEmbedding(nn.Embedding(50, 16))
    vectors = embedding(torch.arange(50))

    # One-hot activations have a level of exactly 127 and are not rounded.
    assert torch.allclose(vectors.t(), embedding.logits(torch.eye(16)), rtol=1e-6, atol=0)
