"""StarCoder 2 (Lozhkov et al. 2024): GPT-2's layers, with turned heads that share keys and values."""

from dataclasses import replace

from weft_export.converters.converter import HfCheckpoint
from weft_export.converters.decoders import read_activation, read_sizes, read_words, turned, windowed
from weft_export.converters.llama import LLAMA
from weft_export.converters.llama import names as llama_names
from weft_export.converters.sources import Names, both
from weft_export.families.decoder_only import DecoderOnlyConfig
from weft_export.layers.style import Style

_ABSENT = {"num_key_value_heads": 2, "intermediate_size": 12288}


def sizes(hf: HfCheckpoint) -> DecoderOnlyConfig:
    """LayerNorm before each sublayer, and a window in all layers or in none."""
    fields = hf.fields
    fields.only("norm_type", "layer_norm")
    fields.only("mlp_type", "default")
    style = Style(
        norm_eps=fields.number("norm_epsilon", 1e-5),
        activation=read_activation(fields, default="gelu_pytorch_tanh"),
        bias=fields.flag("use_bias", default=True),
    )
    config = turned(hf, read_sizes(hf, style, read_words(hf, tied=True), absent=_ABSENT))
    window = fields.whole_or_null("sliding_window", None)
    return windowed(hf, config, window, lambda _: window is not None, typed=False)


def names(config: DecoderOnlyConfig) -> Names:
    """Llama's, but for a feed-forward network without a gate."""
    ours, theirs = "layers.{}.feed_forward", "model.layers.{}.mlp"
    return {
        **llama_names(config),
        **both(f"{ours}.inner", f"{theirs}.c_fc"),
        **both(f"{ours}.outer", f"{theirs}.c_proj"),
    }


STARCODER2 = replace(LLAMA, model_type="starcoder2", architectures=("Starcoder2ForCausalLM",), sizes=sizes, names=names)
