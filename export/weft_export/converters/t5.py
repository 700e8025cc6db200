"""T5 in both versions, FLAN-T5 and mT5 (Raffel et al. 2020; Xue et al. 2021)."""

from weft_export.converters.converter import Converter, HfCheckpoint
from weft_export.converters.fields import ACTIVATIONS
from weft_export.converters.sources import Names, layer_names, rows, tied
from weft_export.families.t5 import T5Config

_SHARED = ("shared.weight", "encoder.embed_tokens.weight", "decoder.embed_tokens.weight")


def sizes(hf: HfCheckpoint) -> T5Config:
    """Relative positions take no weights, so the lengths are the exporter's choice."""
    fields = hf.fields
    is_mt5 = fields.word("model_type") == "mt5"
    num_layers = fields.whole("num_layers", 8 if is_mt5 else 6)
    kind, _, word = fields.word("feed_forward_proj", "gated-gelu" if is_mt5 else "relu").rpartition("-")
    # "gated-gelu" has always meant the GELU by tanh.
    word = "gelu_new" if (kind, word) == ("gated", "gelu") else word
    if kind not in ("", "gated") or word not in ACTIVATIONS:
        raise fields.wrong("feed_forward_proj", "is not supported")
    # Version 1.1 says that its projection is not tied, and is meant to have no scaling. mT5 never has.
    scaled = fields.flag("tie_word_embeddings", default=True) and not is_mt5
    fields.only("dense_act_fn", word)
    fields.only("is_gated_act", kind == "gated")
    if is_mt5:
        fields.only("scale_decoder_outputs", False)
    fields.skip("is_encoder_decoder", "n_positions", "is_decoder")
    return T5Config(
        vocab_size=fields.whole("vocab_size"),
        max_source_tokens=hf.max_source_tokens(None),
        max_target_tokens=hf.max_tokens(None, 512),
        d_model=fields.whole("d_model"),
        num_heads=fields.whole("num_heads"),
        head_dim=fields.whole("d_kv"),
        d_ff=fields.whole("d_ff"),
        num_encoder_layers=num_layers,
        num_decoder_layers=fields.whole("num_decoder_layers", num_layers),
        num_buckets=fields.whole("relative_attention_num_buckets", 32),
        max_distance=fields.whole("relative_attention_max_distance", 128),
        # A file may hold a projection of its own although the config says that it is tied: transformers then takes it.
        tied_projection="lm_head.weight" not in hf.tensors,
        scaled_projection=fields.flag_or_false("scale_decoder_outputs", default=scaled),
        gated=kind == "gated",
        activation=ACTIVATIONS[word],
        norm_eps=fields.number("layer_norm_epsilon", 1e-6),
    )


def names(config: T5Config) -> Names:
    """Their sublayers are numbered: self-attention, cross-attention in the decoder, feed-forward."""
    return {
        "decoder.embedding.tokens.weight": tied(*_SHARED),
        "decoder.embedding.projection.weight": "lm_head.weight",
        **_stack(config, "encoder", "attention", feed_forward=1),
        **_stack(config, "decoder", "self_attention", feed_forward=2),
        **layer_names(_CROSS, "decoder.layers.{}.", "decoder.block.{}.layer.1."),
    }


_CROSS: Names = {
    "cross_attention.query.weight": "EncDecAttention.q.weight",
    "cross_attention.key.weight": "EncDecAttention.k.weight",
    "cross_attention.value.weight": "EncDecAttention.v.weight",
    "cross_attention.output.weight": "EncDecAttention.o.weight",
    "cross_attention_norm.gain": "layer_norm.weight",
}


def _stack(config: T5Config, stack: str, attention: str, feed_forward: int) -> Names:
    first = f"{stack}.block.0.layer.0.SelfAttention"
    inner = {"gate": "wi_0", "inner": "wi_1"} if config.gated else {"inner": "wi"}
    layer: Names = {
        f"{attention}.qkv.weight": rows("layer.0.SelfAttention.{q,k,v}.weight"),
        f"{attention}.output.weight": "layer.0.SelfAttention.o.weight",
        f"{attention}_norm.gain": "layer.0.layer_norm.weight",
        "feed_forward_norm.gain": f"layer.{feed_forward}.layer_norm.weight",
        "feed_forward.outer.weight": f"layer.{feed_forward}.DenseReluDense.wo.weight",
        **{
            f"feed_forward.{ours}.weight": f"layer.{feed_forward}.DenseReluDense.{theirs}.weight"
            for ours, theirs in inner.items()
        },
    }
    return {
        **layer_names(layer, f"{stack}.layers.{{}}.", f"{stack}.block.{{}}."),
        f"{stack}.norm.gain": f"{stack}.final_layer_norm.weight",
        f"{stack}.relative_bias.buckets.weight": f"{first}.relative_attention_bias.weight",
    }


_IGNORED = (r"decoder\.block\.0\.layer\.1\.EncDecAttention\.relative_attention_bias\.weight",)
T5 = Converter(
    model_type="t5",
    architectures=("T5ForConditionalGeneration",),
    family="t5",
    sizes=sizes,
    names=names,
    ignored=_IGNORED,
)
MT5 = Converter(
    model_type="mt5",
    architectures=("MT5ForConditionalGeneration",),
    family="t5",
    sizes=sizes,
    names=names,
    ignored=_IGNORED,
)
CONVERTERS = (T5, MT5)
