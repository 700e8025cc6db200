"""CWM (Meta FAIR CodeGen Team 2025): Llama's layers, of which three in four have a window."""

from dataclasses import replace

from weft_export.converters.converter import HfCheckpoint
from weft_export.converters.decoders import llama_style, turned_sizes, windowed
from weft_export.converters.llama import LLAMA
from weft_export.families.decoder_only import DecoderOnlyConfig

_ROTATION = {
    "rope_type": "llama3",
    "rope_theta": 1e6,
    "factor": 16.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 8192,
}


def sizes(hf: HfCheckpoint) -> DecoderOnlyConfig:
    """Biases only within networks, if the config says so; the first of four layers sees all."""
    fields = hf.fields
    if not fields.raw("rope_scaling") and "rope_parameters" not in fields:
        fields.take_for_granted("rope_parameters", _ROTATION)
        # Its class does not look at it then.
        fields.only("rope_theta", _ROTATION["rope_theta"])
    style = llama_style(hf, norm_eps=1e-5, feed_forward_bias=fields.flag("mlp_bias", default=False))
    absent = {"num_key_value_heads": 8, "head_dim": 128, "intermediate_size": 21504}
    config = turned_sizes(hf, style, absent=absent, theta=1e6)
    window = fields.whole_or_null("sliding_window", 8192) or None
    return windowed(hf, config, window, lambda layer: layer % 4 != 0)


CWM = replace(LLAMA, model_type="cwm", architectures=("CwmForCausalLM",), sizes=sizes)
CONVERTERS = (CWM,)
