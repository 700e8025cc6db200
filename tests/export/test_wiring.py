"""Wrong wirings of a model, the mildest that come to mind: float32's bound is far below what each of them costs."""

import math

import pytest
import torch
from copied_parity import parity_of
from tiny import CHECKPOINTS
from torch import nn

from weft_export.errors import ParityError
from weft_export.families.causal_lm import CausalLm, CausalLmConfig
from weft_export.layers.positions import rotary_tables
from weft_export.verification.tolerances import TOLERANCE, float32_tolerance
from weft_proto.v1 import bundle_pb2

FP32 = bundle_pb2.PRECISION_FP32


def another_norm_eps(model):
    """One norm adds 1e-6 where it should add 1e-5."""
    model.layers[0].attention_norm.eps = 1e-6


def another_rope_theta(model):
    """Positions turn by angles of a base that is 1 % larger."""
    model.cos, model.sin = rotary_tables(model.cos.shape[0], 2 * model.cos.shape[1], 1.01 * model.config.rope_theta)


def two_heads_swapped(model):
    """In one layer, two query heads that share keys and values stand in each other's place."""
    weight = model.layers[1].attention.qkv.weight
    head_dim = weight.shape[1] // model.layers[1].attention.num_heads
    with torch.no_grad():
        first, second = weight[:head_dim].clone(), weight[head_dim : 2 * head_dim].clone()
        weight[:head_dim], weight[head_dim : 2 * head_dim] = second, first


def another_scale(model):
    """In the last layer, scores are 1 % larger."""
    attention = model.layers[-1].attention
    head_dim = attention.output.in_features // attention.num_heads
    attention.scale = 1.01 / math.sqrt(head_dim)


def without_a_bias(model):
    """One layer's projection of queries, keys and values has no bias."""
    nn.init.zeros_(model.layers[1].attention.qkv.bias)


def another_projection(model):
    """Logits are 0.1 % larger."""
    with torch.no_grad():
        model.embeddings.projection.weight *= 1.001


def another_window(model):
    """In the last layer, a token sees one position less."""
    model.layers[-1].attention.window -= 1


@pytest.mark.parametrize(
    ("name", "rewire"),
    [
        ("tiny-generate", another_norm_eps),
        ("tiny-generate", another_rope_theta),
        ("tiny-generate", two_heads_swapped),
        ("tiny-generate", another_scale),
        ("tiny-gpt", another_scale),
        ("tiny-gpt", without_a_bias),
        ("tiny-window", another_window),
        ("tiny-decoder", another_projection),  # it bans a token, whose logit is -10,000
    ],
)
def test_another_wiring_is_found(name, rewire, tiny_repository):
    """Torch wired otherwise than the graphs fails parity, by three times the bound or more."""
    checkpoint = CHECKPOINTS[name]()
    rewire(checkpoint.model)

    with pytest.raises(ParityError, match="of its size") as failure:
        parity_of(checkpoint, tiny_repository / name / "1", FP32)
    assert 3 * TOLERANCE[FP32] < float(str(failure.value).split("differs by ")[1].split(" ")[0])


def test_the_bound_grows_with_width_and_depth_and_no_faster():
    """Float32's bound is the least one for small models; for large ones it goes with the root of terms and products."""
    assert all(TOLERANCE[FP32] == float32_tolerance(make().model) for make in CHECKPOINTS.values())

    def bound(d_model, num_layers):
        sizes = {"d_model": d_model, "num_heads": d_model // 64, "num_kv_heads": d_model // 64, "d_ff": 4 * d_model}
        with torch.device("meta"):
            return float32_tolerance(CausalLm(CausalLmConfig(1000, 64, num_layers=num_layers, **sizes)))

    assert pytest.approx(2.0, rel=0.01) == bound(4096, 100) / bound(1024, 100)
    assert pytest.approx(2.0, rel=0.01) == bound(1024, 100) / bound(1024, 25)
    assert 1e-3 > bound(4096, 32)
