"""EXAONE 4 (LG AI Research 2025): norms after sublayers and of heads; layers that see all have no positions."""

from dataclasses import replace

from weft_export.converters.converter import HfCheckpoint
from weft_export.converters.decoders import llama_style, turned_sizes, windowed
from weft_export.converters.llama import LLAMA
from weft_export.converters.olmo import normed_names
from weft_export.families.decoder_only import ALL, NONE, DecoderOnlyConfig


def sizes(hf: HfCheckpoint) -> DecoderOnlyConfig:
    """Windows in three layers of four. Without a window, all layers see all and have positions."""
    fields = hf.fields
    style = llama_style(hf, norm_eps=1e-5, residual="inner_post", qk_norm=True)
    config = turned_sizes(hf, style, absent={"num_key_value_heads": 32, "intermediate_size": 16384})
    window = fields.whole_or_null("sliding_window", 4096)
    if window is None:
        fields.skip("sliding_window_pattern")
        return windowed(hf, config, None, lambda _: False)
    # A word such as LLLG is for layer_types alone, which say it then.
    typed = isinstance(fields.raw("sliding_window_pattern"), str)
    if typed and "layer_types" not in fields:
        raise fields.wrong("sliding_window_pattern", "needs layer_types beside it, as it is a word")
    pattern = 1 if typed else max(fields.whole("sliding_window_pattern", 4), 1)
    config = windowed(hf, config, window, lambda layer: (layer + 1) % pattern != 0)
    windows = config.windows or (ALL,) * config.num_layers
    return replace(config, rotation_of=tuple(NONE if size == ALL else 0 for size in windows))


EXAONE4 = replace(LLAMA, model_type="exaone4", architectures=("Exaone4ForCausalLM",), sizes=sizes, names=normed_names)
CONVERTERS = (EXAONE4,)
