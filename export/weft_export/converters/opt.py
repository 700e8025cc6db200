"""OPT (Zhang et al. 2022), but for its 350 million one, which has post-norm layers and narrower words."""

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
from weft_export.converters.sources import Names, both, from_row
from weft_export.families.decoder_only import DecoderOnlyConfig
from weft_export.layers.style import Style

FIRST_POSITION = 2
"""Rows of the table of places before that of the first."""


def sizes(hf: HfCheckpoint) -> DecoderOnlyConfig:
    """GPT-2's layers with a ReLU, and a vector for each place."""
    fields = hf.fields
    for name in ("do_layer_norm_before", "layer_norm_elementwise_affine"):
        fields.only(name, True)
    fields.only("_remove_final_layer_norm", False)
    fields.only("word_embed_proj_dim", fields.whole("hidden_size"))
    fields.skip("init_std")
    style = Style(
        activation=read_activation(fields, "activation_function", "relu"),
        bias=fields.flag("enable_bias", default=True),
    )
    words = read_words(hf, tied=True, positions=True)
    called = {"intermediate_size": "ffn_dim"}
    return read_sizes(hf, style, words, called=called, absent={"intermediate_size": 3072}, longest=True, turns=False)


def names(config: DecoderOnlyConfig) -> Names:
    """Their names."""
    layer, theirs = "layers.{}", "model.decoder.layers.{}"
    places = from_row(FIRST_POSITION, "model.decoder.embed_positions.weight", config.max_tokens)
    return {
        **head_names(config, "model.decoder.embed_tokens"),
        "embeddings.positions.weight": places,
        **norm_names("norm", "model.decoder.final_layer_norm"),
        **norm_names(f"{layer}.attention_norm", f"{theirs}.self_attn_layer_norm"),
        **norm_names(f"{layer}.feed_forward_norm", f"{theirs}.final_layer_norm"),
        **attention_names(config, qkv_of(f"{theirs}.self_attn"), f"{theirs}.self_attn.out_proj"),
        **both(f"{layer}.feed_forward.up_proj", f"{theirs}.fc1"),
        **both(f"{layer}.feed_forward.down_proj", f"{theirs}.fc2"),
    }


OPT = Converter(
    model_type="opt",
    architectures=("OPTForCausalLM",),
    family="decoder_only",
    sizes=sizes,
    names=names,
    prefix="model.",
    bias="embeddings.bias",
)
CONVERTERS = (OPT,)
