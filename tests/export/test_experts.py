"""A mixture of experts: which experts a token passes, what of them it gets, and what a config may ask for."""

import io

import numpy as np
import onnxruntime
import pytest
import torch
from torch.nn import functional

from weft_export.families.decoder_only import DecoderOnlyConfig
from weft_export.families.speech import SpeechConfig
from weft_export.layers.block_linear import FOUR_BITS, BlockLinear
from weft_export.layers.quantized_linear import QuantisedLinear
from weft_export.layers.style import Style
from weft_proto.session_entries import SESSION_ENTRIES

EXPERTS, CHOSEN, WIDTH, INSIDE = 4, 2, 32, 64
STYLE = {"rms_norm": True, "activation": "silu", "gated": True, "bias": False}


def mixture(**choices):
    """A random mixture."""
    torch.manual_seed(0)
    style = Style(**STYLE, num_experts=EXPERTS, num_chosen_experts=CHOSEN, **choices)
    return style.feed_forward(WIDTH, INSIDE).eval()


def rounded(layer, make):
    """The mixture with other products."""
    for expert in layer.experts:
        for name, product in list(expert.named_children()):
            setattr(expert, name, make(product))
    return layer


def in_blocks(product):
    """A product of 4 bits."""
    return BlockLinear(product.weight, None, FOUR_BITS)


def token_by_token(layer, x, *, normed):
    """What the formula says, for one token after the other."""
    out = torch.zeros_like(x)
    for at in ((batch, place) for batch in range(x.shape[0]) for place in range(x.shape[1])):
        scores = layer.router @ x[at]
        scores = scores if layer.router_bias is None else scores + layer.router_bias
        best = scores.argsort(descending=True)[:CHOSEN]
        shares = scores[best].softmax(0) if normed else scores.softmax(0)[best]
        out[at] = sum(share * layer.experts[number](x[at][None])[0] for share, number in zip(shares, best, strict=True))
    return out


@torch.inference_mode()
@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("normed", [True, False])
def test_a_token_gets_the_best_experts_by_their_shares(normed, bias):
    """Of the chosen ones, or of all, whose sum is less than 1 then. A bias chooses with the scores."""
    layer, x = mixture(normed_experts=normed, router_bias=bias), torch.randn(3, 5, WIDTH)
    if bias:
        layer.router_bias.copy_(torch.randn(EXPERTS))
    assert torch.allclose(token_by_token(layer, x, normed=normed), layer(x), atol=1e-6)


@torch.inference_mode()
def test_the_row_that_rounded_experts_read_more_is_not_seen():
    """Experts of integers in blocks read a row that nobody asked for, also where nobody chose them."""
    layer, x = rounded(mixture(), in_blocks), torch.randn(1, 1, WIDTH)
    read = []
    for expert in layer.experts:
        expert.register_forward_pre_hook(lambda _, given: read.append(len(given[0])))
    expected = token_by_token(layer, x, normed=True)
    read.clear()

    assert torch.allclose(expected, layer(x), atol=1e-6)
    assert EXPERTS - CHOSEN == read.count(1)
    assert CHOSEN == read.count(2)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::FutureWarning")
@torch.inference_mode()
@pytest.mark.parametrize(
    ("make", "near"),
    # Where activations are rounded, a last bit may be another level.
    [(lambda product: product, 1e-5), (QuantisedLinear, 0.02), (in_blocks, 0.02)],
    ids=["fp32", "int8", "int4"],
)
def test_a_row_has_the_same_bits_in_any_batch(make, near):
    """In ONNX Runtime, of 1 to 33 rows, whichever experts the others chose; and they are what torch gives."""
    layer, file = rounded(mixture(), make), io.BytesIO()
    program = torch.onnx.export(
        layer, (torch.randn(3, 1, WIDTH),), dynamic_shapes=({0: "batch"},), opset_version=21, dynamo=True, verbose=False
    )
    program.save(file)
    options = onnxruntime.SessionOptions()
    for name, value in SESSION_ENTRIES.items():
        options.add_session_config_entry(name, value)
    session = onnxruntime.InferenceSession(file.getvalue(), options, providers=["CPUExecutionProvider"])
    x = torch.randn(33, 1, WIDTH)

    def run(rows):
        (out,) = session.run(None, {session.get_inputs()[0].name: x.numpy()[rows]})
        return out

    together = run(list(range(33)))
    for size in range(1, 33):
        for rows in (list(range(size)), list(range(33))[-size:][::-1]):
            assert np.array_equal(together[rows], run(rows)), f"rows {rows}"
    assert near > np.abs(together - layer(x).numpy()).max()


@torch.inference_mode()
@pytest.mark.parametrize("num_rows", [1, 2, 33])
def test_no_expert_reads_one_row_alone(num_rows):
    """A chosen one reads a row more, so its bits are those of company. At float32 the others read nothing."""
    layer, read = mixture(), []
    for expert in layer.experts:
        expert.register_forward_pre_hook(lambda _, given: read.append(len(given[0])))
    x = torch.randn(num_rows, 1, WIDTH)
    layer(x)
    chosen = (layer.gates(x.flatten(0, 1)) != 0).sum(0)
    assert torch.where(chosen > 0, chosen + 1, 0).tolist() == read
    assert num_rows * CHOSEN == chosen.sum()


def test_large_numbers_give_numbers():
    """A share may be 0 in float32. Then it adds nothing."""
    layer, x = mixture(normed_experts=False), torch.randn(2, 3, WIDTH) * 1e4
    assert functional.linear(x, layer.router).abs().max() > 1e3
    assert layer(x).isfinite().all()


@pytest.mark.parametrize(
    ("choices", "why"),
    [
        ({"num_experts": 4}, "stand together"),
        ({"num_chosen_experts": 2}, "stand together"),
        ({"normed_experts": False}, "style.normed_experts is of a mixture: it stands with style.num_experts"),
        ({"router_bias": True}, "style.router_bias is of a mixture: it stands with style.num_experts"),
        ({"d_shared": 64}, "style.d_shared is of a mixture: it stands with style.num_experts"),
        ({"gate_limit": 7.0}, "style.gate_limit is of a gate: it stands with style.gated"),
        ({"whole_qk_norm": True}, "style.whole_qk_norm is a kind of style.qk_norm: it stands with it"),
        ({"num_experts": 4, "num_chosen_experts": 5}, r"num_chosen_experts \(5\) must be in \[1, num_experts = 4\]"),
    ],
)
def test_a_mixture_that_cannot_be_is_refused(choices, why):
    """By the names of its fields."""
    with pytest.raises(ValueError, match=why):
        Style(**choices)


def test_more_experts_than_any_model_has_are_refused():
    """They take no memory before the weights are read, but time: each is a module."""
    style = Style(**STYLE, num_experts=1024, num_chosen_experts=2)
    sizes = {"vocab_size": 300, "max_tokens": 64, "d_model": 32, "num_heads": 2, "num_kv_heads": 1, "d_ff": 64}
    DecoderOnlyConfig(**sizes, num_layers=16, style=style)
    with pytest.raises(ValueError, match=r"num_layers \* num_experts is 17408; at most 16384 are allowed"):
        DecoderOnlyConfig(**sizes, num_layers=17, style=style)


@pytest.mark.parametrize("which", ["style", "encoder_style"])
def test_more_experts_are_refused_in_any_family(which):
    """Each style counts with all layers of its config."""
    sizes = {"target_vocab_size": 300, "max_target_tokens": 8, "num_mels": 8, "num_frames": 16, "d_model": 32}
    sizes |= {"num_encoder_heads": 2, "d_encoder_ff": 64, "num_encoder_layers": 8}
    sizes |= {"num_decoder_heads": 2, "d_decoder_ff": 64}
    choices = {which: Style(**STYLE, num_experts=1024, num_chosen_experts=2)}
    SpeechConfig(**sizes, num_decoder_layers=8, **choices)
    with pytest.raises(ValueError, match=r"num_layers \* num_experts is 17408; at most 16384 are allowed"):
        SpeechConfig(**sizes, num_decoder_layers=9, **choices)
