"""Nemotron 4 and Minitron (Parmar et al. 2024), and AFM (Arcee AI 2025): a squared ReLU, and no gate."""

from dataclasses import replace

from weft_export.converters.converter import HfCheckpoint
from weft_export.converters.decoders import llama_style, plus_one, read_activation, turned_sizes
from weft_export.converters.llama import LLAMA, llama_names
from weft_export.converters.rope import rope_dim
from weft_export.converters.sources import Names
from weft_export.families.decoder_only import DecoderOnlyConfig
from weft_export.layers.style import Style

_LAYER, _THEIRS = "layers.{}", "model.layers.{}"


def sizes(hf: HfCheckpoint) -> DecoderOnlyConfig:
    """Nemotron: LayerNorms, and half of each head turned."""
    fields = hf.fields
    style = Style(
        norm_eps=fields.number("norm_eps", 1e-5),
        activation=read_activation(fields, default="relu2"),
        bias=fields.flag("attention_bias", default=False),
        feed_forward_bias=fields.flag("mlp_bias", default=False),
    )
    config = turned_sizes(hf, style, absent={"intermediate_size": 24576}, share=0.5)
    # NVIDIA's words for three of the above, which transformers does not read.
    head_dim = config.head_dim - (config.padding or 0)
    fields.only("kv_channels", head_dim)
    fields.only("rope_percent", rope_dim(config.rotations[0]) / head_dim)
    fields.only("layer_norm_eps", style.norm_eps)
    return config


def arcee_sizes(hf: HfCheckpoint) -> DecoderOnlyConfig:
    """AFM: Llama's layers otherwise."""
    fields = hf.fields
    style = llama_style(
        hf,
        norm_eps=1e-5,
        activation=read_activation(fields, default="relu2"),
        gated=False,
        bias=fields.flag("attention_bias", default=False),
        feed_forward_bias=fields.flag("mlp_bias", default=False),
    )
    return turned_sizes(hf, style, absent={"intermediate_size": 18432})


def names(config: DecoderOnlyConfig) -> Names:
    """Llama's, with gains that are stored as what they are above 1."""
    norms = {
        "norm": "model.norm",
        f"{_LAYER}.attention_norm": f"{_THEIRS}.input_layernorm",
        f"{_LAYER}.feed_forward_norm": f"{_THEIRS}.post_attention_layernorm",
    }
    return {**llama_names(config), **{f"{ours}.weight": plus_one(f"{theirs}.weight") for ours, theirs in norms.items()}}


NEMOTRON = replace(LLAMA, model_type="nemotron", architectures=("NemotronForCausalLM",), sizes=sizes, names=names)
ARCEE = replace(LLAMA, model_type="arcee", architectures=("ArceeForCausalLM",), sizes=arcee_sizes)
CONVERTERS = (NEMOTRON, ARCEE)
