"""Phi 1, 1.5 and 2 (Gunasekar et al. 2023), Phi 3 and 4 (Abdin et al. 2024)."""

from dataclasses import replace

from weft_export.converters.converter import HfCheckpoint
from weft_export.converters.decoders import (
    attention_names,
    head_names,
    llama_style,
    merged_gated_names,
    norm_names,
    qkv_of,
    read_activation,
    read_sizes,
    read_words,
    turned,
    turned_sizes,
    windowed,
)
from weft_export.converters.llama import LLAMA
from weft_export.converters.sources import Names, both
from weft_export.families.decoder_only import DecoderOnlyConfig
from weft_export.layers.style import Style

_ABSENT = {"intermediate_size": 8192}


def sizes(hf: HfCheckpoint) -> DecoderOnlyConfig:
    """Phi: attention and feed-forward beside each other after one norm, half of each head turned, biases everywhere."""
    fields = hf.fields
    fields.only("qk_layernorm", False)
    style = Style(
        residual="parallel",
        norm_eps=fields.number("layer_norm_eps", 1e-5),
        activation=read_activation(fields, default="gelu_new"),
    )
    words = replace(read_words(hf, tied=False), bias=True)
    return turned(hf, read_sizes(hf, style, words, absent=_ABSENT), share=0.5)


def names(config: DecoderOnlyConfig) -> Names:
    """Phi's names. Both our norms are their one."""
    layer, theirs = "layers.{}", "model.layers.{}"
    return {
        **head_names(config, "model.embed_tokens"),
        "embeddings.bias": "lm_head.bias",
        **norm_names("norm", "model.final_layernorm"),
        **norm_names(f"{layer}.attention_norm", f"{theirs}.input_layernorm"),
        **norm_names(f"{layer}.feed_forward_norm", f"{theirs}.input_layernorm"),
        **attention_names(config, qkv_of(f"{theirs}.self_attn"), f"{theirs}.self_attn.dense"),
        **both(f"{layer}.feed_forward.up_proj", f"{theirs}.mlp.fc1"),
        **both(f"{layer}.feed_forward.down_proj", f"{theirs}.mlp.fc2"),
    }


def llama_sizes(hf: HfCheckpoint) -> DecoderOnlyConfig:
    """Phi 3: Llama's layers. Phi 4 mini turns three quarters of each head."""
    fields = hf.fields
    for name in ("attention_bias", "mlp_bias", "lm_head_bias"):
        fields.only(name, False)
    for name in ("full_attn_mod", "interpolate_factor"):
        fields.only(name, 1)
    # A rotation that is stretched reads it. Another does not need it.
    fields.skip("original_max_position_embeddings")
    fields.take_for_granted("original_max_position_embeddings", 4096)
    config = turned_sizes(hf, llama_style(hf, norm_eps=1e-5), absent=_ABSENT, share=1.0)
    window = fields.whole_or_null("sliding_window", None)
    return windowed(hf, config, window, lambda _: window is not None, typed=False)


def llama_names(config: DecoderOnlyConfig) -> Names:
    """Phi 3's names: queries, keys and values in one matrix, as ours, and SwiGLU's gate_proj and up_proj in another."""
    layer, theirs = "layers.{}", "model.layers.{}"
    return {
        **head_names(config, "model.embed_tokens"),
        **norm_names("norm", "model.norm"),
        **norm_names(f"{layer}.attention_norm", f"{theirs}.input_layernorm"),
        **norm_names(f"{layer}.feed_forward_norm", f"{theirs}.post_attention_layernorm"),
        **attention_names(config, [f"{theirs}.self_attn.qkv_proj"], f"{theirs}.self_attn.o_proj"),
        **merged_gated_names(f"{theirs}.mlp"),
    }


PHI = replace(LLAMA, model_type="phi", architectures=("PhiForCausalLM",), sizes=sizes, names=names)
PHI3 = replace(LLAMA, model_type="phi3", architectures=("Phi3ForCausalLM",), sizes=llama_sizes, names=llama_names)
CONVERTERS = (PHI, PHI3)
