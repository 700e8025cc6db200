"""Jais 2 (Inception, MBZUAI and Cerebras 2025): Llama's layers with LayerNorms, a squared ReLU and no gate."""

from dataclasses import replace

from weft_export.converters.converter import HfCheckpoint
from weft_export.converters.decoders import read_activation, turned_sizes
from weft_export.converters.llama import LLAMA
from weft_export.families.decoder_only import DecoderOnlyConfig
from weft_export.layers.style import Style


def sizes(hf: HfCheckpoint) -> DecoderOnlyConfig:
    """Heads are turned whole, and all products have biases unless the config says otherwise."""
    fields = hf.fields
    style = Style(
        norm_eps=fields.number("layer_norm_eps", 1e-5),
        activation=read_activation(fields, default="relu2"),
        bias=fields.flag("attention_bias", default=True),
        feed_forward_bias=fields.flag("mlp_bias", default=True),
    )
    return turned_sizes(hf, style, absent={"intermediate_size": 26624})


JAIS2 = replace(LLAMA, model_type="jais2", architectures=("Jais2ForCausalLM",), sizes=sizes)
CONVERTERS = (JAIS2,)
