"""GPT-2 (Radford et al. 2019), and what is built like it."""

from torch import Tensor

from weft_export.converters.converter import Converter, HfCheckpoint
from weft_export.converters.decoders import (
    attention_names,
    head_names,
    norm_names,
    read_activation,
    read_sizes,
    read_words,
)
from weft_export.converters.heads import HeadLayout, Split
from weft_export.converters.sources import Names, from_row, transposed
from weft_export.families.decoder_only import DecoderOnlyConfig
from weft_export.layers.style import Style

_CALLED = {
    "hidden_size": "n_embd",
    "num_attention_heads": "n_head",
    "num_hidden_layers": "n_layer",
    "intermediate_size": "n_inner",
    "max_position_embeddings": "n_positions",
}
_SUMMARY = ("type", "use_proj", "activation", "proj_to_labels", "first_dropout")


def sizes(hf: HfCheckpoint) -> DecoderOnlyConfig:
    """LayerNorm before each sublayer, GELU, biases everywhere, a vector for each place."""
    fields = hf.fields
    for name in ("scale_attn_by_inverse_layer_idx", "add_cross_attention"):
        fields.only(name, False)
    # What summary_ is for has another head. Scores are float32 here anyway.
    fields.skip("n_ctx", "reorder_and_upcast_attn", *(f"summary_{each}" for each in _SUMMARY))
    style = Style(
        norm_eps=fields.number("layer_norm_epsilon", 1e-5),
        activation=read_activation(fields, "activation_function", "gelu_new"),
        scale=None if fields.flag("scale_attn_weights", default=True) else 1.0,
    )
    words = read_words(hf, tied=True, positions=True)
    return read_sizes(
        hf, style, words, called=_CALLED, absent={"max_position_embeddings": 1024}, longest=True, turns=False
    )


def names(config: DecoderOnlyConfig) -> Names:
    """Their names. Matrices are stored as [in, out]."""
    layer, theirs = "layers.{}", "transformer.h.{}"
    return {
        **head_names(config, "transformer.wte"),
        "words.positions.weight": from_row(0, "transformer.wpe.weight", config.max_tokens),
        **norm_names("norm", "transformer.ln_f"),
        **norm_names(f"{layer}.attention_norm", f"{theirs}.ln_1"),
        **norm_names(f"{layer}.feed_forward_norm", f"{theirs}.ln_2"),
        **attention_names(config, [f"{theirs}.attn.c_attn"], f"{theirs}.attn.c_proj", _thirds, transposed=True),
        f"{layer}.feed_forward.inner.weight": transposed(f"{theirs}.mlp.c_fc.weight"),
        f"{layer}.feed_forward.inner.bias": f"{theirs}.mlp.c_fc.bias",
        f"{layer}.feed_forward.outer.weight": transposed(f"{theirs}.mlp.c_proj.weight"),
        f"{layer}.feed_forward.outer.bias": f"{theirs}.mlp.c_proj.bias",
    }


def _thirds(_: HeadLayout) -> Split:
    def split(tensor: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        # A bias has one axis, which is the last of a matrix too.
        query, key, value = tensor.movedim(-1, 0).chunk(3)
        return query, key, value

    return split


GPT2 = Converter(
    model_type="gpt2",
    architectures=("GPT2LMHeadModel",),
    family="decoder_only",
    sizes=sizes,
    names=names,
    prefix="transformer.",
    ignored=(r"(transformer\.)?h\.\d+\.attn\.(bias|masked_bias)",),
    bias="words.bias",
)
CONVERTERS = (GPT2,)
