"""LFM2 (Liquid AI 2025): short convolutions with gates, and attention in some layers."""

from dataclasses import replace

from torch import Tensor

from weft_export.converters.converter import HfCheckpoint
from weft_export.converters.decoders import (
    attention_names,
    head_names,
    norm_names,
    qkv_of,
    read_sizes,
    read_taps,
    read_words,
    turned,
)
from weft_export.converters.fields import Fields
from weft_export.converters.llama import LLAMA
from weft_export.converters.sources import Names, both, computed
from weft_export.families.hybrid import HybridConfig
from weft_export.layers.style import Style

_LAYER, _THEIRS = "layers.{}", "model.layers.{}"
_INSIDE = {"gate_proj": "w1", "up_proj": "w3", "down_proj": "w2"}
# How weights began. The released configs have these.
_INITIAL = ("block_mlp_init_scale", "block_out_init_scale", "block_use_xavier_init", "conv_use_xavier_init")


def sizes(hf: HfCheckpoint) -> HybridConfig:
    """Llama's layers with norms of heads; those that layer_types calls conv do not attend."""
    fields = hf.fields
    _only_usual(fields)
    style = Style(
        rms_norm=True,
        norm_eps=fields.number("norm_eps", 1e-5),
        activation="silu",
        gated=True,
        bias=False,
        qk_norm=True,
    )
    words = read_words(hf, tied=True)
    if "tie_embedding" in fields:
        words = replace(words, tied=fields.flag("tie_embedding"))
    called = {"intermediate_size": "block_ff_dim"} if "block_ff_dim" in fields else {}
    fields.skip("intermediate_size")
    absent = {"num_key_value_heads": 8, "intermediate_size": 12288}
    config = turned(hf, read_sizes(hf, style, words, called=called, absent=absent), theta=1e6)
    taps = read_taps(fields, "conv_L_cache", 3)
    return HybridConfig(
        **vars(config) | {"d_ff": _inside(fields, config.d_ff)},
        attends=_attends(fields, config.num_layers),
        convolution_taps=taps,
        convolution_bias=fields.flag("conv_bias", default=False),
    )


def _only_usual(fields: Fields) -> None:
    """Refuse what a released config says and transformers does not read, unless it says what transformers does."""
    fields.skip(*_INITIAL)
    for name in ("block_dim", "conv_dim", "conv_dim_out"):
        fields.only(name, fields.raw("hidden_size"))
    fields.only("num_heads", fields.raw("num_attention_heads"))
    fields.only("block_norm_eps", fields.number("norm_eps", 1e-5))
    fields.only("block_use_swiglu", True)
    fields.only("use_pos_enc", True)


def _inside(fields: Fields, d_ff: int) -> int:
    """Return how wide networks are inside: two thirds of what the config says, and a multiple of a number."""
    multiplier = fields.number_or_null("block_ffn_dim_multiplier", 1.0)
    multiple = fields.whole("block_multiple_of", 256)
    if not fields.flag("block_auto_adjust_ff_dim", default=True):
        return d_ff
    d_ff = int(2 * d_ff / 3)
    if multiplier is None:
        return d_ff
    if not multiple:
        raise fields.wrong("block_multiple_of", "must be at least 1")
    return multiple * -(-int(multiplier * d_ff) // multiple)


def _attends(fields: Fields, num_layers: int) -> tuple[int, ...]:
    """Return which layers attend: those that layer_types says, else those of full_attn_idxs, else all."""
    known = ["conv", "full_attention"]
    attending = fields.list("full_attn_idxs", list(range(num_layers))) if "full_attn_idxs" in fields else None
    usual = [known[attending is None or layer in attending] for layer in range(num_layers)]
    types = fields.list("layer_types", usual) if "layer_types" in fields else usual
    if len(types) != num_layers or not all(each in known for each in types):
        raise fields.wrong("layer_types", f"must have {' or '.join(known)} for each of {num_layers} layers")
    if known[1] not in types:
        raise fields.wrong("layer_types", f"has no {known[1]}: a model without any attention is not supported")
    return tuple(known.index(each) for each in types)


def taps_first(weight: Tensor) -> Tensor:
    """Return a kernel [width, 1, taps] as ours, [taps, width]."""
    return weight[:, 0].t().contiguous()


def names(config: HybridConfig) -> Names:
    """Their names; all layers have the same two norms."""
    ours, theirs = f"{_LAYER}.recurrence", f"{_THEIRS}.conv"
    return {
        **head_names(config, "model.embed_tokens"),
        **norm_names("norm", "model.embedding_norm"),
        **norm_names(f"{_LAYER}.attention_norm", f"{_THEIRS}.operator_norm"),
        **norm_names(f"{_LAYER}.recurrence_norm", f"{_THEIRS}.operator_norm"),
        **norm_names(f"{_LAYER}.feed_forward_norm", f"{_THEIRS}.ffn_norm"),
        **attention_names(config, qkv_of(f"{_THEIRS}.self_attn"), f"{_THEIRS}.self_attn.out_proj"),
        f"{_LAYER}.attention.qk_norm.query.weight": f"{_THEIRS}.self_attn.q_layernorm.weight",
        f"{_LAYER}.attention.qk_norm.key.weight": f"{_THEIRS}.self_attn.k_layernorm.weight",
        **both(f"{ours}.input", f"{theirs}.in_proj"),
        **both(f"{ours}.output", f"{theirs}.out_proj"),
        f"{ours}.convolution.weight": computed(taps_first, f"{theirs}.conv.weight"),
        f"{ours}.convolution.bias": f"{theirs}.conv.bias",
        **{
            f"{_LAYER}.feed_forward.{our}.weight": f"{_THEIRS}.feed_forward.{their}.weight"
            for our, their in _INSIDE.items()
        },
    }


LFM2 = replace(LLAMA, model_type="lfm2", architectures=("Lfm2ForCausalLM",), family="hybrid", sizes=sizes, names=names)
CONVERTERS = (LFM2,)
