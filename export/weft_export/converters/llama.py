"""Llama 1 to 3 (Touvron et al. 2023; Grattafiori et al. 2024), and what is built like it: SmolLM, many others."""

from weft_export.converters.converter import Converter, Foreign
from weft_export.converters.decoders import head_names, read_sizes, turned
from weft_export.converters.sources import Names, both, both_rows
from weft_export.families.decoder_only import DecoderOnlyConfig
from weft_export.layers.style import Style
from weft_export.layers.words import WordStyle

ACTIVATIONS = {"silu": "silu", "gelu": "gelu", "gelu_new": "gelu_tanh", "gelu_pytorch_tanh": "gelu_tanh"}


def sizes(foreign: Foreign) -> DecoderOnlyConfig:
    """RMSNorm before each sublayer, SwiGLU, heads that share keys and values, rotary positions."""
    fields = foreign.fields
    fields.only("pretraining_tp", 1)
    style = Style(
        rms_norm=True,
        norm_eps=fields.number("rms_norm_eps", 1e-6),
        activation=fields.among("hidden_act", ACTIVATIONS, "silu"),
        gated=True,
        bias=fields.flag("attention_bias", default=False),
        feed_forward_bias=fields.flag("mlp_bias", default=False),
    )
    words = WordStyle(tied=fields.flag("tie_word_embeddings", default=False), bias=bool(foreign.generation.banned))
    return turned(foreign, read_sizes(foreign, style, words))


def names(_: DecoderOnlyConfig) -> Names:
    """Their names; queries, keys and values lie below each other in our one matrix."""
    layer, theirs = "layers.{}", "model.layers.{}"
    return {
        **head_names("model.embed_tokens", "lm_head"),
        "norm.gain": "model.norm.weight",
        f"{layer}.attention_norm.gain": f"{theirs}.input_layernorm.weight",
        f"{layer}.feed_forward_norm.gain": f"{theirs}.post_attention_layernorm.weight",
        **both_rows(f"{layer}.attention.qkv", f"{theirs}.self_attn.{{q,k,v}}_proj"),
        **both(f"{layer}.attention.output", f"{theirs}.self_attn.o_proj"),
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
    ignored=(r".*\.rotary_emb\.inv_freq", r"lm_head\.weight"),
    bias="words.bias",
)
