"""Qwen 2 and 2.5 (Yang et al. 2024), Qwen 3 (Yang et al. 2025): Llama with other biases and norms."""

from dataclasses import replace

from weft_export.converters.converter import HfCheckpoint
from weft_export.converters.decoders import read_activation, read_sizes, read_words, turned, windowed
from weft_export.converters.llama import LLAMA
from weft_export.converters.llama import names as llama_names
from weft_export.converters.sources import Names
from weft_export.families.decoder_only import DecoderOnlyConfig
from weft_export.layers.style import Style

_ABSENT = {"num_key_value_heads": 32, "intermediate_size": 22016}


def sizes(hf: HfCheckpoint) -> DecoderOnlyConfig:
    """Qwen 2: queries, keys and values have biases."""
    fields = hf.fields
    style = replace(_style(hf), qkv_bias=True)
    fields.only("use_mrope", False)
    config = read_sizes(hf, style, read_words(hf, tied=False), absent=_ABSENT)
    return _windowed(hf, turned(hf, config))


def normed_sizes(hf: HfCheckpoint) -> DecoderOnlyConfig:
    """Qwen 3: each head of queries and keys passes an RMSNorm."""
    style = replace(_style(hf), qk_norm=True, bias=hf.fields.flag("attention_bias", default=False))
    style = replace(style, feed_forward_bias=False)
    config = read_sizes(hf, style, read_words(hf, tied=False), absent={**_ABSENT, "head_dim": 128})
    return _windowed(hf, turned(hf, config))


def normed_names(config: DecoderOnlyConfig) -> Names:
    """Llama's, and the norms of heads."""
    ours, theirs = "layers.{}.attention.qk_norm", "model.layers.{}.self_attn"
    return {
        **llama_names(config),
        f"{ours}.query.gain": f"{theirs}.q_norm.weight",
        f"{ours}.key.gain": f"{theirs}.k_norm.weight",
    }


def _style(hf: HfCheckpoint) -> Style:
    fields = hf.fields
    return Style(
        rms_norm=True,
        norm_eps=fields.number("rms_norm_eps", 1e-6),
        activation=read_activation(fields),
        gated=True,
        bias=False,
    )


def _windowed(hf: HfCheckpoint, config: DecoderOnlyConfig) -> DecoderOnlyConfig:
    """A window in the layers from max_window_layers on, if there is one at all."""
    fields = hf.fields
    first, window = fields.whole("max_window_layers", 28), fields.whole_or_null("sliding_window", 4096)
    if not fields.flag("use_sliding_window", default=False):
        window = None
    return windowed(hf, config, window, lambda layer: window is not None and layer >= first)


QWEN2 = replace(LLAMA, model_type="qwen2", architectures=("Qwen2ForCausalLM",), sizes=sizes)
QWEN3 = replace(LLAMA, model_type="qwen3", architectures=("Qwen3ForCausalLM",), sizes=normed_sizes, names=normed_names)
