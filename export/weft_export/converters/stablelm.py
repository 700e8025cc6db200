"""StableLM 3B and its kin (Bellagente et al. 2024): Llama with LayerNorm, and a quarter of each head turned."""

from dataclasses import replace

from weft_export.converters.converter import HfCheckpoint
from weft_export.converters.decoders import norm_names, read_activation, read_sizes, read_words, turned
from weft_export.converters.llama import LLAMA
from weft_export.converters.llama import names as llama_names
from weft_export.converters.sources import Names
from weft_export.families.decoder_only import DecoderOnlyConfig
from weft_export.layers.style import Style

_ABSENT = {"num_key_value_heads": 32, "intermediate_size": 6912}


def sizes(hf: HfCheckpoint) -> DecoderOnlyConfig:
    """Sublayers stand behind or beside each other. The 12 billion one, whose every head has a norm, is refused."""
    fields = hf.fields
    fields.only("qk_layernorm", False)
    style = Style(
        residual="parallel" if fields.flag("use_parallel_residual", default=False) else "pre",
        norm_eps=fields.number("layer_norm_eps", 1e-5),
        activation=read_activation(fields),
        gated=True,
        bias=False,
        qkv_bias=fields.flag("use_qkv_bias", default=False),
    )
    return turned(hf, read_sizes(hf, style, read_words(hf, tied=False), absent=_ABSENT), share=0.25)


def names(config: DecoderOnlyConfig) -> Names:
    """Llama's. Sublayers beside each other have one norm, which both of ours are then."""
    if config.style.residual == "pre":
        return llama_names(config)
    one = norm_names("layers.{}.feed_forward_norm", "model.layers.{}.input_layernorm")
    return {**llama_names(config), **one}


STABLELM = replace(LLAMA, model_type="stablelm", architectures=("StableLmForCausalLM",), sizes=sizes, names=names)
