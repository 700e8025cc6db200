"""Granite 3 (Granite Team, IBM 2024): Llama's layers, with four multipliers."""

from dataclasses import replace

from weft_export.converters.converter import HfCheckpoint
from weft_export.converters.decoders import llama_style, read_sizes, read_words, turned
from weft_export.converters.llama import LLAMA
from weft_export.families.decoder_only import DecoderOnlyConfig


def sizes(hf: HfCheckpoint) -> DecoderOnlyConfig:
    """Of what tokens become, of scores, of what a sublayer adds, and of logits."""
    fields = hf.fields
    style = llama_style(
        hf,
        bias=fields.flag("attention_bias", default=False),
        feed_forward_bias=fields.flag("mlp_bias", default=False),
        scale=fields.positive("attention_multiplier", 1.0),
        residual_scale=fields.positive("residual_multiplier", 1.0),
    )
    words = read_words(
        hf,
        tied=False,
        scale=fields.positive("embedding_multiplier", 1.0),
        logit_scale=1 / fields.positive("logits_scaling", 1.0),
    )
    return turned(hf, read_sizes(hf, style, words, absent={"intermediate_size": 11008}))


GRANITE = replace(LLAMA, model_type="granite", architectures=("GraniteForCausalLM",), sizes=sizes)
CONVERTERS = (GRANITE,)
