"""Mistral (Jiang et al. 2023): Llama with a window in all layers, or in none."""

from dataclasses import replace

from weft_export.converters.converter import HfCheckpoint
from weft_export.converters.decoders import read_activation, read_sizes, read_words, turned, windowed
from weft_export.converters.llama import LLAMA
from weft_export.families.decoder_only import DecoderOnlyConfig
from weft_export.layers.style import Style

_ABSENT = {"num_key_value_heads": 8, "intermediate_size": 14336}


def sizes(hf: HfCheckpoint) -> DecoderOnlyConfig:
    """Llama's style, without biases."""
    fields = hf.fields
    style = Style(
        rms_norm=True,
        norm_eps=fields.number("rms_norm_eps", 1e-6),
        activation=read_activation(fields),
        gated=True,
        bias=False,
    )
    config = turned(hf, read_sizes(hf, style, read_words(hf, tied=False), absent=_ABSENT))
    # null is no window, and nothing at all is the first model's.
    window = fields.whole_or_null("sliding_window", 4096)
    return windowed(hf, config, window, lambda _: window is not None, typed=False)


MISTRAL = replace(LLAMA, model_type="mistral", architectures=("MistralForCausalLM",), sizes=sizes)
