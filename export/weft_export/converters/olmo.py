"""OLMo 1 (Groeneveld et al. 2024), 2 and 3 (OLMo Team 2024, 2025)."""

from dataclasses import replace

import torch

from weft_export.converters.converter import HfCheckpoint
from weft_export.converters.decoders import (
    llama_style,
    norm_names,
    read_activation,
    read_sizes,
    read_words,
    turned_by_window,
    turned_sizes,
    windowed,
)
from weft_export.converters.llama import LLAMA, llama_names
from weft_export.converters.sources import Names, computed
from weft_export.families.decoder_only import DecoderOnlyConfig
from weft_export.layers.style import Style

_LAYER, _THEIRS = "layers.{}", "model.layers.{}"
_ABSENT = {"intermediate_size": 11008}


def sizes(hf: HfCheckpoint) -> DecoderOnlyConfig:
    """OLMo 1: LayerNorms without weights. Those that clip queries and the like are refused."""
    fields = hf.fields
    fields.only("clip_qkv", None)
    style = Style(
        norm_bias=False,
        activation=read_activation(fields),
        gated=True,
        bias=fields.flag("attention_bias", default=False),
        feed_forward_bias=False,
    )
    return turned_sizes(hf, style, absent=_ABSENT)


def names(config: DecoderOnlyConfig) -> Names:
    """Llama's, with norms that leave all numbers as they are."""
    norms = ("norm", f"{_LAYER}.attention_norm", f"{_LAYER}.feed_forward_norm")
    ones = computed(lambda: torch.ones(config.d_model))
    return {**llama_names(config), **{f"{norm}.weight": ones for norm in norms}}


def normed_sizes(hf: HfCheckpoint) -> DecoderOnlyConfig:
    """OLMo 2: a norm after each sublayer, and one of all queries and of all keys."""
    return turned_sizes(hf, _normed(hf), absent=_ABSENT)


def windowed_sizes(hf: HfCheckpoint) -> DecoderOnlyConfig:
    """OLMo 3: likewise, with a window in three layers of four, whose rotation is never stretched."""
    fields = hf.fields
    config = read_sizes(hf, _normed(hf), read_words(hf, tied=False), absent=_ABSENT)
    window = fields.whole_or_null("sliding_window", 4096)
    config = windowed(hf, config, window, lambda layer: (layer + 1) % 4 != 0)
    # rope_theta is that of layers that see all. transformers takes it for no others.
    return turned_by_window(hf, config, far=fields.number("rope_theta", 500000.0), near=500000.0)


def normed_names(config: DecoderOnlyConfig) -> Names:
    """Llama's, with norms that stand elsewhere."""
    ours, theirs = f"{_LAYER}.attention.qk_norm", f"{_THEIRS}.self_attn"
    return {
        **llama_names(config),
        **norm_names(f"{_LAYER}.attention_norm", f"{_THEIRS}.post_attention_layernorm"),
        **norm_names(f"{_LAYER}.feed_forward_norm", f"{_THEIRS}.post_feedforward_layernorm"),
        f"{ours}.query.weight": f"{theirs}.q_norm.weight",
        f"{ours}.key.weight": f"{theirs}.k_norm.weight",
    }


def _normed(hf: HfCheckpoint) -> Style:
    bias = hf.fields.flag("attention_bias", default=False)
    return llama_style(
        hf,
        norm_eps=1e-5,
        residual="inner_post",
        bias=bias,
        feed_forward_bias=False,
        qk_norm=True,
        whole_qk_norm=True,
    )


OLMO = replace(LLAMA, model_type="olmo", architectures=("OlmoForCausalLM",), sizes=sizes, names=names)
OLMO2 = replace(LLAMA, model_type="olmo2", architectures=("Olmo2ForCausalLM",), sizes=normed_sizes, names=normed_names)
OLMO3 = replace(OLMO2, model_type="olmo3", architectures=("Olmo3ForCausalLM",), sizes=windowed_sizes)
CONVERTERS = (OLMO, OLMO2, OLMO3)
