"""GPT-Neo (Black et al. 2021): GPT-2's layers, of which every second one has a window."""

from dataclasses import replace

from weft_export.converters.converter import Converter, HfCheckpoint
from weft_export.converters.decoders import (
    attention_names,
    head_names,
    norm_names,
    qkv_of,
    read_activation,
    read_sizes,
    read_words,
)
from weft_export.converters.gpt2 import SUMMARY
from weft_export.converters.sources import Names, both, from_row
from weft_export.families.decoder_only import ALL, DecoderOnlyConfig
from weft_export.layers.style import Style

_CALLED = {"num_attention_heads": "num_heads", "num_hidden_layers": "num_layers"}
_GLOBAL, _LOCAL = "global", "local"


def sizes(hf: HfCheckpoint) -> DecoderOnlyConfig:
    """LayerNorm before each sublayer, scores that nothing divides, a vector for each place."""
    fields = hf.fields
    fields.skip(*SUMMARY)
    style = Style(
        norm_eps=fields.number("layer_norm_epsilon", 1e-5),
        activation=read_activation(fields, "activation_function", "gelu_new"),
        qkv_bias=False,
        scale=1.0,
    )
    words = read_words(hf, tied=True, positions=True)
    config = read_sizes(hf, style, words, called=_CALLED, longest=True, turns=False)
    types = _types(hf, config.num_layers)
    if _LOCAL not in types:
        return config
    window = fields.whole("window_size", 256)
    if not window:
        raise fields.wrong("window_size", "must be at least 1")
    near = {_GLOBAL: ALL, _LOCAL: min(window, config.max_tokens)}
    return replace(config, windows=tuple(near[each] for each in types))


def _types(hf: HfCheckpoint, num_layers: int) -> list[str]:
    """Return global or local for each layer: attention_types is a list of [types, how many times]."""
    fields, types = hf.fields, []
    complaint = (
        f"must be a list of [types, how many times], in all {_GLOBAL} or {_LOCAL} for each of {num_layers} layers"
    )
    for group in fields.list("attention_types", [[[_GLOBAL, _LOCAL], 12]]):
        match group:
            case [[*each], int(times)] if len(each) * times <= num_layers:
                types += each * times
            case _:
                raise fields.wrong("attention_types", complaint)
    if len(types) != num_layers or any(each not in (_GLOBAL, _LOCAL) for each in types):
        raise fields.wrong("attention_types", complaint)
    # transformers writes what it made of the groups, and reads it again.
    fields.only("attention_layers", types)
    return types


def names(config: DecoderOnlyConfig) -> Names:
    """Their names."""
    layer, theirs = "layers.{}", "transformer.h.{}"
    attention = f"{theirs}.attn.attention"
    return {
        **head_names(config, "transformer.wte"),
        "embeddings.positions.weight": from_row(0, "transformer.wpe.weight", config.max_tokens),
        **norm_names("norm", "transformer.ln_f"),
        **norm_names(f"{layer}.attention_norm", f"{theirs}.ln_1"),
        **norm_names(f"{layer}.feed_forward_norm", f"{theirs}.ln_2"),
        **attention_names(config, qkv_of(attention), f"{attention}.out_proj"),
        **both(f"{layer}.feed_forward.up_proj", f"{theirs}.mlp.c_fc"),
        **both(f"{layer}.feed_forward.down_proj", f"{theirs}.mlp.c_proj"),
    }


GPT_NEO = Converter(
    model_type="gpt_neo",
    architectures=("GPTNeoForCausalLM",),
    family="decoder_only",
    sizes=sizes,
    names=names,
    prefix="transformer.",
    ignored=(r"(transformer\.)?h\.\d+\.attn\.attention\.(bias|masked_bias)",),
    bias="embeddings.bias",
)
CONVERTERS = (GPT_NEO,)
