"""Granite 3 (Granite Team, IBM 2024): Llama's layers, with four multipliers."""

from dataclasses import replace

from weft_export.converters.converter import HfCheckpoint
from weft_export.converters.decoders import llama_style, read_sizes, read_words, turned
from weft_export.converters.llama import LLAMA
from weft_export.families.decoder_only import DecoderOnlyConfig
from weft_export.layers.embeddings import EmbeddingStyle
from weft_export.layers.style import Style


def sizes(hf: HfCheckpoint) -> DecoderOnlyConfig:
    """Of what tokens become, of scores, of what a sublayer adds, and of logits."""
    style = replace(granite_style(hf), feed_forward_bias=hf.fields.flag("mlp_bias", default=False))
    return turned(hf, read_sizes(hf, style, granite_words(hf), absent={"intermediate_size": 11008}))


def granite_style(hf: HfCheckpoint) -> Style:
    """Return the style of layers, with the two multipliers there."""
    fields = hf.fields
    # null is what attention does by itself, and nothing at all is 1.
    is_usual = fields.number_or_null("attention_multiplier", 1.0) is None
    return llama_style(
        hf,
        bias=fields.flag("attention_bias", default=False),
        feed_forward_bias=False,
        scale=None if is_usual else fields.positive("attention_multiplier", 1.0),
        residual_scale=fields.positive("residual_multiplier", 1.0),
    )


def granite_words(hf: HfCheckpoint) -> EmbeddingStyle:
    """Return how words become vectors and back, with the other two."""
    fields = hf.fields
    scale, divisor = fields.positive("embedding_multiplier", 1.0), fields.positive("logits_scaling", 1.0)
    return read_words(hf, tied=False, scale=scale, logit_scale=1 / divisor)


GRANITE = replace(LLAMA, model_type="granite", architectures=("GraniteForCausalLM",), sizes=sizes)
CONVERTERS = (GRANITE,)
