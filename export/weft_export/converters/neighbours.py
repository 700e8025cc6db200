"""Llamas whose heads are turned in pairs of neighbours: Helium 1 (Kyutai 2025) and ERNIE 4.5 (Baidu 2025)."""

from dataclasses import replace
from functools import partial

from weft_export.converters.converter import HfCheckpoint
from weft_export.converters.decoders import llama_style, turned_sizes
from weft_export.converters.llama import LLAMA, llama_names
from weft_export.families.decoder_only import DecoderOnlyConfig


def helium_sizes(hf: HfCheckpoint) -> DecoderOnlyConfig:
    """Helium: biases where the config says so, and none behind attention."""
    fields = hf.fields
    style = llama_style(
        hf,
        norm_eps=1e-8,
        qkv_bias=fields.flag("attention_bias", default=False),
        feed_forward_bias=fields.flag("mlp_bias", default=False),
    )
    absent = {"num_key_value_heads": 20, "head_dim": 128, "intermediate_size": 7040}
    return turned_sizes(hf, style, absent=absent, theta=100000.0)


def ernie_sizes(hf: HfCheckpoint) -> DecoderOnlyConfig:
    """ERNIE: biases everywhere or nowhere."""
    # Places would be divided by it, but not by transformers.
    hf.fields.only("compression_ratio", 1.0)
    style = llama_style(hf, norm_eps=1e-5, bias=hf.fields.flag("use_bias", default=False))
    absent = {"num_key_value_heads": 2, "head_dim": 128, "intermediate_size": 3072}
    return turned_sizes(hf, style, absent=absent, tied=True, theta=500000.0)


_names = partial(llama_names, neighbours=True)
HELIUM = replace(LLAMA, model_type="helium", architectures=("HeliumForCausalLM",), sizes=helium_sizes, names=_names)
# The second is the name in files that Baidu released before transformers had the class.
_NAMED = ("Ernie4_5ForCausalLM", "Ernie4_5_ForCausalLM")
ERNIE = replace(LLAMA, model_type="ernie4_5", architectures=_NAMED, sizes=ernie_sizes, names=_names)
CONVERTERS = (HELIUM, ERNIE)
