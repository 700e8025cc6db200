"""SmolLM 3 (Hugging Face 2025): Llama with no positions at all in every fourth layer."""

from dataclasses import replace

from weft_export.converters.converter import HfCheckpoint
from weft_export.converters.decoders import read_activation, read_sizes, read_words, turned, windowed
from weft_export.converters.llama import LLAMA
from weft_export.families.decoder_only import NONE, DecoderOnlyConfig
from weft_export.layers.style import Style

THETA = 2e6
_ABSENT = {"num_key_value_heads": 4, "intermediate_size": 11008}


def sizes(hf: HfCheckpoint) -> DecoderOnlyConfig:
    """no_rope_layers has 1 for a layer that turns its heads, in spite of its name."""
    fields = hf.fields
    # The released config has both, and transformers reads neither.
    fields.skip("pretraining_tp", "max_window_layers")
    style = Style(
        rms_norm=True,
        norm_eps=fields.number("rms_norm_eps", 1e-6),
        activation=read_activation(fields),
        gated=True,
        bias=fields.flag("attention_bias", default=False),
        feed_forward_bias=fields.flag("mlp_bias", default=False),
    )
    config = turned(hf, read_sizes(hf, style, read_words(hf, tied=True), absent=_ABSENT), theta=THETA)
    every = max(fields.whole("no_rope_layer_interval", 4), 1)
    turns = fields.list("no_rope_layers", [int((layer + 1) % every != 0) for layer in range(config.num_layers)])
    if len(turns) < config.num_layers or not all(each in (0, 1) for each in turns):
        raise fields.wrong("no_rope_layers", f"must have 0 or 1 for each of {config.num_layers} layers")
    config = replace(config, rotation_of=tuple(0 if each else NONE for each in turns[: config.num_layers]))
    window = fields.whole_or_null("sliding_window", None)
    if not fields.flag("use_sliding_window", default=False):
        window = None
    return windowed(hf, config, window, lambda layer: window is not None and not turns[layer])


SMOLLM3 = replace(LLAMA, model_type="smollm3", architectures=("SmolLM3ForCausalLM",), sizes=sizes)
