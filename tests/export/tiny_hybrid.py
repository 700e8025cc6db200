"""A tiny random generator of which one layer attends, and two keep a state of constant size, as in LFM2."""

from dataclasses import replace

import torch
from tiny_decoder import MAX_TOKENS, tiny_decoder
from tiny_parts import randomised

from weft_export.checkpoints.checkpoint import Checkpoint
from weft_export.families.hybrid import Hybrid, HybridConfig
from weft_export.families.rwkv7 import Rwkv7, Rwkv7Config
from weft_export.families.state_spaces import StateSpaces, StateSpacesConfig
from weft_export.layers.positions import Rope
from weft_export.layers.selective_state_space import SelectiveSizes
from weft_export.layers.state_space import StateSpaceSizes
from weft_export.layers.style import Style
from weft_export.layers.time_mix import TimeMixSizes

TAPS = 4


def tiny_hybrid() -> Checkpoint:
    """Return a generator of bytes: convolutions of four taps around a layer that attends.

    Its heads are turned and then normed, as in Hunyuan, and have sinks, as in gpt-oss.
    """
    config = HybridConfig(
        vocab_size=300,
        max_tokens=MAX_TOKENS,
        d_model=48,
        num_heads=3,
        num_kv_heads=1,
        d_ff=80,
        num_layers=3,
        style=Style(rms_norm=True, activation="silu", gated=True, bias=False, qk_norm=True),
        rotations=(Rope(tuple(1000.0 ** (-pair / 8) for pair in range(8))),),
        sinks=True,
        norms_turned=True,
        attends=(0, 1, 0),
        convolution_taps=TAPS,
        convolution_bias=True,
    )
    return replace(tiny_decoder(), family="hybrid", model=randomised(Hybrid(config)), attention_layer=0)


def tiny_mamba() -> Checkpoint:
    """Return a generator of bytes of state spaces alone, as in Mamba 2."""
    sizes = StateSpaceSizes(num_state_heads=4, d_state_head=16, d_state=16, num_state_groups=2)
    config = StateSpacesConfig(vocab_size=300, max_tokens=MAX_TOKENS, d_model=32, num_layers=2, state_space=sizes)
    model = randomised(StateSpaces(config))
    return replace(tiny_decoder(), family="state_spaces", model=model, attention_layer=None)


def tiny_selective() -> Checkpoint:
    """Return a generator of bytes of selective state spaces alone, normed within as in Falcon Mamba."""
    sizes = SelectiveSizes(d_inner=40, d_state=9, step_rank=3, inner_norm_eps=1e-5)
    config = StateSpacesConfig(vocab_size=300, max_tokens=MAX_TOKENS, d_model=32, num_layers=2, selective=sizes)
    model = randomised(StateSpaces(config))
    with torch.no_grad():
        for layer in model.layers:
            layer.recurrence.rate.abs_()  # one below 0 remembers ever more
    return replace(tiny_decoder(), family="state_spaces", model=model, attention_layer=None)


def tiny_rwkv() -> Checkpoint:
    """Return a generator of bytes of RWKV 7's layers."""
    sizes = TimeMixSizes(num_state_heads=3, d_state_head=12, decay_rank=5, rate_rank=4, value_rank=3, gate_rank=7)
    config = Rwkv7Config(vocab_size=300, max_tokens=MAX_TOKENS, d_model=36, d_ff=72, num_layers=2, time_mix=sizes)
    model = randomised(Rwkv7(config))
    return replace(tiny_decoder(), family="rwkv7", model=model, attention_layer=None)


def tiny_state_space() -> Checkpoint:
    """Return a generator of bytes: a state space before a layer that attends, without positions, as in Granite 4.

    Each layer has a mixture of experts, and a network beside it that all tokens pass.
    """
    config = HybridConfig(
        vocab_size=300,
        max_tokens=MAX_TOKENS,
        d_model=48,
        num_heads=3,
        num_kv_heads=1,
        d_ff=40,
        num_layers=2,
        style=Style(
            rms_norm=True,
            activation="silu",
            gated=True,
            bias=False,
            residual_scale=0.7,
            num_experts=3,
            num_chosen_experts=2,
            d_shared=48,
        ),
        attends=(0, 1),
        state_space=StateSpaceSizes(num_state_heads=6, d_state_head=16, d_state=24, num_state_groups=2),
    )
    return replace(tiny_decoder(), family="hybrid", model=randomised(Hybrid(config)), attention_layer=0)
