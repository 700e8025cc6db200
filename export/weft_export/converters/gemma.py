"""Gemma 1, 2 and 3 (Gemma Team 2024, 2024, 2025): gains stored as what they are above 1, and scaled embeddings."""

import math
from collections.abc import Callable
from dataclasses import replace

from weft_export.converters.converter import HfCheckpoint
from weft_export.converters.decoders import (
    attention_names,
    gated_names,
    head_names,
    plus_one,
    qkv_of,
    read_activation,
    read_sizes,
    read_words,
    turned,
    turned_by_window,
    windowed,
)
from weft_export.converters.llama import LLAMA
from weft_export.converters.sources import Names
from weft_export.families.decoder_only import DecoderOnlyConfig
from weft_export.layers.embeddings import EmbeddingStyle
from weft_export.layers.style import Style

_ABSENT = {"head_dim": 256, "num_key_value_heads": 16, "intermediate_size": 24576}
_ABSENT_LATER = {"head_dim": 256, "num_key_value_heads": 4, "intermediate_size": 9216}


def sizes(hf: HfCheckpoint) -> DecoderOnlyConfig:
    """Gemma 1: Llama's layers, with a GELU."""
    fields = hf.fields
    fields.only("hidden_activation", "gelu_pytorch_tanh")
    # The first configs said "gelu" and meant its other form.
    activation = {"gelu": "gelu_tanh"}.get(fields.word("hidden_act", "gelu"), read_activation(fields, "hidden_act"))
    style = replace(_style(hf), activation=activation)
    config = read_sizes(hf, style, _words(hf), absent=_ABSENT)
    return turned(hf, config)


def capped_sizes(hf: HfCheckpoint) -> DecoderOnlyConfig:
    """Gemma 2: norms before and after each sublayer, soft caps, and a window in every second layer."""
    fields = hf.fields
    style = replace(_sandwich(hf), softcap=fields.number_or_null("attn_logit_softcapping", 50.0))
    words = _words(hf, softcap=fields.number_or_null("final_logit_softcapping", 30.0))
    config = turned(hf, read_sizes(hf, style, words, absent=_ABSENT_LATER))
    return windowed(hf, config, fields.whole_or_null("sliding_window", 4096), lambda layer: layer % 2 == 0)


def normed_sizes(hf: HfCheckpoint) -> DecoderOnlyConfig:
    """Gemma 3: heads with norms instead of soft caps, and a rotation of its own in the layers with a window."""
    fields = hf.fields
    # transformers reads it and does not apply it.
    fields.only("attn_logit_softcapping", None)
    style = replace(_sandwich(hf), qk_norm=True)
    words = _words(hf, softcap=fields.number_or_null("final_logit_softcapping", None))
    pattern = max(fields.whole("sliding_window_pattern", 6), 1)
    config = read_sizes(hf, style, words, absent=_ABSENT_LATER)
    window = fields.whole_or_null("sliding_window", 4096)
    config = windowed(hf, config, window, lambda layer: (layer + 1) % pattern != 0)
    far, near = fields.number("rope_theta", 1e6), fields.number("rope_local_base_freq", 1e4)
    return turned_by_window(hf, config, far=far, near=near)


def names(config: DecoderOnlyConfig) -> Names:
    """Gemma 1: Llama's names."""
    layer, theirs = "layers.{}", "model.layers.{}"
    return {
        **_names(config),
        f"{layer}.attention_norm.weight": plus_one(f"{theirs}.input_layernorm.weight"),
        f"{layer}.feed_forward_norm.weight": plus_one(f"{theirs}.post_attention_layernorm.weight"),
    }


def sandwich_names(config: DecoderOnlyConfig) -> Names:
    """Gemma 2 and 3: four norms for each layer, and those of heads, which only Gemma 3 has."""
    layer, theirs = "layers.{}", "model.layers.{}"
    return {
        **_names(config),
        f"{layer}.attention_norm.before.weight": plus_one(f"{theirs}.input_layernorm.weight"),
        f"{layer}.attention_norm.after.weight": plus_one(f"{theirs}.post_attention_layernorm.weight"),
        f"{layer}.feed_forward_norm.before.weight": plus_one(f"{theirs}.pre_feedforward_layernorm.weight"),
        f"{layer}.feed_forward_norm.after.weight": plus_one(f"{theirs}.post_feedforward_layernorm.weight"),
        f"{layer}.attention.qk_norm.query.weight": plus_one(f"{theirs}.self_attn.q_norm.weight"),
        f"{layer}.attention.qk_norm.key.weight": plus_one(f"{theirs}.self_attn.k_norm.weight"),
    }


def _names(config: DecoderOnlyConfig) -> Names:
    theirs = "model.layers.{}"
    return {
        **head_names(config, "model.embed_tokens"),
        "norm.weight": plus_one("model.norm.weight"),
        **attention_names(config, qkv_of(f"{theirs}.self_attn"), f"{theirs}.self_attn.o_proj"),
        **gated_names(f"{theirs}.mlp"),
    }


def _style(hf: HfCheckpoint) -> Style:
    fields = hf.fields
    return Style(
        rms_norm=True,
        norm_eps=fields.number("rms_norm_eps", 1e-6),
        gated=True,
        bias=fields.flag("attention_bias", default=False),
        feed_forward_bias=False,
    )


def _sandwich(hf: HfCheckpoint) -> Style:
    fields = hf.fields
    fields.only("hidden_act", "gelu_pytorch_tanh")
    return replace(
        _style(hf),
        residual="sandwich",
        activation=read_activation(fields, "hidden_activation", "gelu_pytorch_tanh"),
        scale=fields.positive("query_pre_attn_scalar", 256) ** -0.5,
    )


def _words(hf: HfCheckpoint, *, softcap: float | None = None) -> EmbeddingStyle:
    scale = math.sqrt(hf.fields.whole("hidden_size"))
    return read_words(hf, tied=True, scale=scale, softcap=softcap)


def _of_texts(sizes: Callable[[HfCheckpoint], DecoderOnlyConfig]) -> Callable[[HfCheckpoint], DecoderOnlyConfig]:
    """Return what reads the sizes of a decoder of texts, which is read in one direction."""

    def checked(hf: HfCheckpoint) -> DecoderOnlyConfig:
        hf.fields.only("use_bidirectional_attention", False)
        return sizes(hf)

    return checked


GEMMA = replace(LLAMA, model_type="gemma", architectures=("GemmaForCausalLM",), sizes=_of_texts(sizes), names=names)
GEMMA2 = replace(
    GEMMA,
    model_type="gemma2",
    architectures=("Gemma2ForCausalLM",),
    sizes=_of_texts(capped_sizes),
    names=sandwich_names,
)
GEMMA3 = replace(
    GEMMA,
    model_type="gemma3_text",
    architectures=("Gemma3ForCausalLM",),
    sizes=_of_texts(normed_sizes),
    names=sandwich_names,
)
CONVERTERS = (GEMMA, GEMMA2, GEMMA3)
