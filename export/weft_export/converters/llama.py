"""Llama 1 to 3 (Touvron et al. 2023; Grattafiori et al. 2024), and what is built like it: SmolLM, many others."""

from weft_export.converters.converter import Converter, HfCheckpoint
from weft_export.converters.decoders import (
    attention_names,
    head_names,
    norm_names,
    qkv_of,
    read_activation,
    read_sizes,
    read_words,
    turned,
)
from weft_export.converters.sources import Names, both
from weft_export.families.decoder_only import DecoderOnlyConfig
from weft_export.layers.style import Style

_ABSENT = {"intermediate_size": 11008}


def sizes(hf: HfCheckpoint) -> DecoderOnlyConfig:
    """RMSNorm before each sublayer, SwiGLU, heads that share keys and values, rotary positions."""
    fields = hf.fields
    fields.only("pretraining_tp", 1)
    fields.only("rope_interleaved", False)
    style = Style(
        rms_norm=True,
        norm_eps=fields.number("rms_norm_eps", 1e-6),
        activation=read_activation(fields),
        gated=True,
        bias=fields.flag("attention_bias", default=False),
        feed_forward_bias=fields.flag("mlp_bias", default=False),
    )
    return turned(hf, read_sizes(hf, style, read_words(hf, tied=False), absent=_ABSENT))


def names(config: DecoderOnlyConfig) -> Names:
    """Their names; queries, keys and values lie below each other in our one matrix."""
    layer, theirs = "layers.{}", "model.layers.{}"
    return {
        **head_names(config, "model.embed_tokens"),
        **norm_names("norm", "model.norm"),
        **norm_names(f"{layer}.attention_norm", f"{theirs}.input_layernorm"),
        **norm_names(f"{layer}.feed_forward_norm", f"{theirs}.post_attention_layernorm"),
        **attention_names(config, qkv_of(f"{theirs}.self_attn"), f"{theirs}.self_attn.o_proj"),
        **both(f"{layer}.feed_forward.gate", f"{theirs}.mlp.gate_proj"),
        **both(f"{layer}.feed_forward.inner", f"{theirs}.mlp.up_proj"),
        **both(f"{layer}.feed_forward.outer", f"{theirs}.mlp.down_proj"),
    }


LLAMA = Converter(
    model_type="llama",
    architectures=("LlamaForCausalLM",),
    family="decoder_only",
    sizes=sizes,
    names=names,
    ignored=(r".*\.rotary_emb\.inv_freq",),
    bias="words.bias",
)
