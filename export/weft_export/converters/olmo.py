"""OLMo 1 (Groeneveld et al. 2024): Llama with a LayerNorm that has no weights."""

from dataclasses import replace

import torch

from weft_export.converters.converter import HfCheckpoint
from weft_export.converters.decoders import read_activation, read_sizes, read_words, turned
from weft_export.converters.llama import LLAMA
from weft_export.converters.llama import names as llama_names
from weft_export.converters.sources import Names, computed
from weft_export.families.decoder_only import DecoderOnlyConfig
from weft_export.layers.style import Style

_ABSENT = {"intermediate_size": 11008}


def sizes(hf: HfCheckpoint) -> DecoderOnlyConfig:
    """Llama's layers. Those that clip queries, keys and values are refused."""
    fields = hf.fields
    fields.only("clip_qkv", None)
    style = Style(
        norm_bias=False,
        activation=read_activation(fields),
        gated=True,
        bias=fields.flag("attention_bias", default=False),
        feed_forward_bias=False,
    )
    return turned(hf, read_sizes(hf, style, read_words(hf, tied=False), absent=_ABSENT))


def names(config: DecoderOnlyConfig) -> Names:
    """Llama's, with norms that leave all numbers as they are."""
    norms = ("norm", "layers.{}.attention_norm", "layers.{}.feed_forward_norm")
    ones = computed(lambda: torch.ones(config.d_model))
    return {**llama_names(config), **{f"{norm}.weight": ones for norm in norms}}


OLMO = replace(LLAMA, model_type="olmo", architectures=("OlmoForCausalLM",), sizes=sizes, names=names)
