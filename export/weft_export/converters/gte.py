"""GTE (Zhang et al. 2024, "mGTE"): BERT with rotary positions and gated layers.

Weights have the names of its authors' files, whose class is code of theirs: transformers saves them by these names.
"""

import torch

from weft_export.converters.converter import HfCheckpoint
from weft_export.converters.encoders import DEFAULT_TEXT, LABELS, kinds
from weft_export.converters.fields import ACTIVATIONS
from weft_export.converters.masked_lm_heads import MaskedLmHead
from weft_export.converters.rope import read_rope, rope_dim
from weft_export.converters.sources import Names, Source, both, computed, half, layer_names
from weft_export.families.encoder_only import EncoderOnlyConfig
from weft_export.layers.embeddings import EmbeddingStyle
from weft_export.layers.reach import ALL
from weft_export.layers.style import Style

_BODY = "gte."


def sizes(hf: HfCheckpoint, *, tags: bool) -> EncoderOnlyConfig:
    """Words and perhaps the first segment, normed; post-norm layers, which all turn heads in the same way."""
    fields = hf.fields
    fields.skip("tie_word_embeddings")  # read for the head
    d_model, num_heads = fields.whole("hidden_size", 768), fields.whole("num_attention_heads", 12)
    num_layers, eps = fields.whole("num_hidden_layers", 12), fields.number("layer_norm_eps", 1e-12)
    head_dim = fields.whole("head_dim", d_model // max(num_heads, 1))
    max_tokens = hf.max_tokens(fields.whole("max_position_embeddings", 8192), DEFAULT_TEXT)
    rotation = read_rope(fields, head_dim, max_tokens, theta=160_000.0)
    if rope_dim(rotation) != head_dim:
        raise fields.wrong("rope_parameters", "must turn whole heads")
    return EncoderOnlyConfig(
        vocab_size=fields.whole("vocab_size", 250048),
        num_labels=fields.num_labels(),
        max_tokens=max_tokens,
        d_model=d_model,
        num_heads=num_heads,
        d_ff=fields.whole("intermediate_size", 3072),
        num_layers=num_layers,
        style=Style(
            residual="post",
            norm_eps=eps,
            activation=fields.among("hidden_act", ACTIVATIONS, "gelu"),
            gated=True,
            head_dim=head_dim,
        ),
        # In the stead of places each has the vector of the first segment, where segments have any.
        embeddings=EmbeddingStyle(positions=fields.whole("type_vocab_size", 1) > 0, norm=True, norm_eps=eps),
        rotations=(rotation,),
        rotation_of=(0,) * num_layers,
        windows=(ALL,) * num_layers,
        head_activation=None if tags else "tanh",
    )


def names(config: EncoderOnlyConfig) -> Names:
    """Gates have no bias, and what is behind them has one."""
    tokens, types = (f"{_BODY}embeddings.{kind}_embeddings.weight" for kind in ("word", "token_type"))
    table: dict[str, Source | str] = {"body.embeddings.tokens.weight": tokens}
    if config.embeddings.positions:
        # Of two tables, as pairs.py looks for segments.
        table["body.embeddings.positions.weight"] = computed(
            lambda _, segments: segments[:1].expand(config.max_tokens, -1).contiguous(), tokens, types
        )
    layer: Names = {
        **both("attention.qkv", "attention.qkv_proj"),
        **both("attention.output", "attention.o_proj"),
        **both("attention_norm", "attn_ln"),
        "feed_forward.up_proj.weight": half(0, "mlp.up_gate_proj.weight"),
        "feed_forward.gate_proj.weight": half(1, "mlp.up_gate_proj.weight"),
        **{
            f"feed_forward.{part}.bias": computed(lambda: torch.zeros(config.d_ff)) for part in ("up_proj", "gate_proj")
        },
        **both("feed_forward.down_proj", "mlp.down_proj"),
        **both("feed_forward_norm", "mlp_ln"),
    }
    return {
        **table,
        **both("body.embeddings.norm", f"{_BODY}embeddings.LayerNorm"),
        **layer_names(layer, "body.encoder.layers.{}.", f"{_BODY}encoder.layer.{{}}."),
    }


GTE = kinds(
    "gte",
    ("GteForSequenceClassification", "GteForTokenClassification"),
    sizes,
    names,
    ({**both("head.dense", f"{_BODY}pooler.dense"), **LABELS}, LABELS),
    (r"gte\.pooler\..*", r"lm_head\..*"),
    words=MaskedLmHead("lm_head.dense", "lm_head.norm", "lm_head.decoder", activation="gelu"),
)
# transformers has no class of it that extracts answers.
CONVERTERS = tuple(each for each in GTE if each.family != "encoder_only_extractor")
