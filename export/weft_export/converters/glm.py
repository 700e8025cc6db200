"""GLM 4 of 2024 (GLM Team 2024) and of 2025: half of each head is turned, in pairs of neighbours."""

from dataclasses import replace

from weft_export.converters.converter import HfCheckpoint
from weft_export.converters.decoders import llama_style, merged_gated_names, norm_names, turned_sizes
from weft_export.converters.llama import LLAMA, llama_names
from weft_export.converters.sources import Names
from weft_export.families.decoder_only import DecoderOnlyConfig

_LAYER, _THEIRS = "layers.{}", "model.layers.{}"


def sizes(hf: HfCheckpoint) -> DecoderOnlyConfig:
    """The first: Llama's layers, and biases of queries, keys and values."""
    return _sizes(hf, "pre")


def sandwich_sizes(hf: HfCheckpoint) -> DecoderOnlyConfig:
    """The second, 0414: with a norm after each sublayer, too."""
    return _sizes(hf, "sandwich")


def _sizes(hf: HfCheckpoint, residual: str) -> DecoderOnlyConfig:
    bias = hf.fields.flag("attention_bias", default=True)
    style = llama_style(hf, norm_eps=1.5625e-7, residual=residual, qkv_bias=bias)
    absent = {"num_key_value_heads": 2, "head_dim": 128, "intermediate_size": 13696}
    return turned_sizes(hf, style, absent=absent, share=0.5)


def names(config: DecoderOnlyConfig) -> Names:
    """Llama's, but that gate_proj and up_proj are one tensor."""
    return {**llama_names(config, neighbours=True), **merged_gated_names(f"{_THEIRS}.mlp")}


def sandwich_names(config: DecoderOnlyConfig) -> Names:
    """The same with four norms for each layer."""
    return {
        **names(config),
        **norm_names(f"{_LAYER}.attention_norm.before", f"{_THEIRS}.input_layernorm"),
        **norm_names(f"{_LAYER}.attention_norm.after", f"{_THEIRS}.post_self_attn_layernorm"),
        **norm_names(f"{_LAYER}.feed_forward_norm.before", f"{_THEIRS}.post_attention_layernorm"),
        **norm_names(f"{_LAYER}.feed_forward_norm.after", f"{_THEIRS}.post_mlp_layernorm"),
    }


GLM = replace(LLAMA, model_type="glm", architectures=("GlmForCausalLM",), sizes=sizes, names=names)
GLM4 = replace(GLM, model_type="glm4", architectures=("Glm4ForCausalLM",), sizes=sandwich_sizes, names=sandwich_names)
CONVERTERS = (GLM, GLM4)
