"""T5 in both versions, FLAN-T5, ByT5, MADLAD-400, mT5 and UMT5.

Raffel et al. 2020; Xue et al. 2021 (mT5), 2022 (ByT5); Kudugunta et al. 2023; Chung et al. 2023.
"""

import torch

from weft_export.converters.converter import Converter, HfCheckpoint
from weft_export.converters.fields import ACTIVATIONS
from weft_export.converters.sources import Names, computed, layer_names, rows, tied
from weft_export.families.t5 import T5Config

_FLATTER = (
    "tie_word_embeddings is false: transformers 5 divides the logits of a UMT5 by the root of d_model all the same, and"
    " so does this bundle. Greedy answers do not change by it; probabilities and draws are flatter"
)
_SHARED = ("shared.weight", "encoder.embed_tokens.weight", "decoder.embed_tokens.weight")


def sizes(hf: HfCheckpoint) -> T5Config:
    """Relative positions take no weights, so the lengths are the exporter's choice."""
    fields = hf.fields
    model_type = fields.word("model_type")
    is_t5 = model_type == "t5"
    num_layers = fields.whole("num_layers", 6 if is_t5 else 8)
    kind, _, word = fields.word("feed_forward_proj", "relu" if is_t5 else "gated-gelu").rpartition("-")
    # "gated-gelu" has always meant the GELU by tanh.
    word = "gelu_new" if (kind, word) == ("gated", "gelu") else word
    if kind not in ("", "gated") or word not in ACTIVATIONS:
        raise fields.wrong("feed_forward_proj", "is not supported")
    # Version 1.1 says that its projection is not tied, and is meant to have no scaling. mT5 never has, and UMT5 always.
    is_tied = fields.flag("tie_word_embeddings", default=True)
    scaled = {"mt5": False, "umt5": True}.get(model_type, is_tied)
    if model_type == "umt5":
        # Of the files that Google released. No version of the library reads it.
        fields.skip("scalable_attention")
        if not is_tied:
            fields.note(_FLATTER)
    fields.only("dense_act_fn", word)
    fields.only("is_gated_act", kind == "gated")
    if not is_t5:
        fields.only("scale_decoder_outputs", scaled)
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
        layers_share_bias=model_type != "umt5",
        activation=ACTIVATIONS[word],
        norm_eps=fields.number("layer_norm_epsilon", 1e-6),
    )


def names(config: T5Config) -> Names:
    """Their sublayers are numbered: self-attention, cross-attention in the decoder, feed-forward."""
    return {
        "decoder.embedding.tokens.weight": tied(*_SHARED),
        "decoder.embedding.projection.weight": "lm_head.weight",
        **_stack(config, "encoder", "attention", config.num_encoder_layers, feed_forward=1),
        **_stack(config, "decoder", "self_attention", config.num_decoder_layers, feed_forward=2),
        **layer_names(_CROSS, "decoder.layers.{}.", "decoder.block.{}.layer.1."),
    }


_CROSS: Names = {
    "cross_attention.query.weight": "EncDecAttention.q.weight",
    "cross_attention.key.weight": "EncDecAttention.k.weight",
    "cross_attention.value.weight": "EncDecAttention.v.weight",
    "cross_attention.output.weight": "EncDecAttention.o.weight",
    "cross_attention_norm.weight": "layer_norm.weight",
}


def _stack(config: T5Config, stack: str, attention: str, num_layers: int, *, feed_forward: int) -> Names:
    tables = [
        f"{stack}.block.{layer}.layer.0.SelfAttention.relative_attention_bias.weight"
        for layer in range(1 if config.layers_share_bias else num_layers)
    ]
    products = {"gate_proj": "wi_0", "up_proj": "wi_1"} if config.gated else {"up_proj": "wi"}
    layer: Names = {
        f"{attention}.qkv.weight": rows("layer.0.SelfAttention.{q,k,v}.weight"),
        f"{attention}.output.weight": "layer.0.SelfAttention.o.weight",
        f"{attention}_norm.weight": "layer.0.layer_norm.weight",
        "feed_forward_norm.weight": f"layer.{feed_forward}.layer_norm.weight",
        "feed_forward.down_proj.weight": f"layer.{feed_forward}.DenseReluDense.wo.weight",
        **{
            f"feed_forward.{ours}.weight": f"layer.{feed_forward}.DenseReluDense.{theirs}.weight"
            for ours, theirs in products.items()
        },
    }
    return {
        **layer_names(layer, f"{stack}.layers.{{}}.", f"{stack}.block.{{}}."),
        f"{stack}.norm.weight": f"{stack}.final_layer_norm.weight",
        f"{stack}.relative_bias.buckets.weight": computed(lambda *parts: torch.cat(parts, dim=1), *tables),
    }


IGNORED = (r"decoder\.block\.0\.layer\.1\.EncDecAttention\.relative_attention_bias\.weight",)
T5 = Converter(
    model_type="t5",
    architectures=("T5ForConditionalGeneration",),
    family="t5",
    sizes=sizes,
    names=names,
    ignored=IGNORED,
)
MT5 = Converter(
    model_type="mt5",
    architectures=("MT5ForConditionalGeneration",),
    family="t5",
    sizes=sizes,
    names=names,
    ignored=IGNORED,
)
UMT5 = Converter(
    model_type="umt5",
    architectures=("UMT5ForConditionalGeneration",),
    family="t5",
    sizes=sizes,
    names=names,
)
CONVERTERS = (T5, MT5, UMT5)
