"""MPNet (Song et al. 2020): BERT with T5's relative bias, without segments, and with positions from row 2 on."""

from weft_export.converters.converter import HfCheckpoint
from weft_export.converters.encoders import LABELS, kinds, no_layer, read_sizes
from weft_export.converters.masked_lm_heads import ROBERTA_HEAD
from weft_export.converters.sources import Names, both, both_rows, from_row, layer_names, norm
from weft_export.families.encoder_only import EncoderOnlyConfig

_FIRST_ROW, _MAX_DISTANCE = 2, 128
# transformers takes so many whatever the config says, and fails where the table has fewer.
_NUM_BUCKETS = 32


def sizes(hf: HfCheckpoint, *, tags: bool) -> EncoderOnlyConfig:
    """All offsets from 128 on share a bucket."""
    hf.fields.only("relative_attention_num_buckets", _NUM_BUCKETS)
    return read_sizes(
        hf,
        first_row=_FIRST_ROW,
        num_buckets=_NUM_BUCKETS,
        max_distance=_MAX_DISTANCE,
        **no_layer(tags=tags),
    )


def names(config: EncoderOnlyConfig) -> Names:
    """The bias lies in the encoder, and is that of all layers."""
    words = "mpnet.embeddings."
    return {
        "body.words.tokens.weight": f"{words}word_embeddings.weight",
        "body.words.positions.weight": from_row(_FIRST_ROW, f"{words}position_embeddings.weight", config.max_tokens),
        **norm("body.words.norm", f"{words}LayerNorm"),
        "body.encoder.relative_bias.buckets.weight": "mpnet.encoder.relative_attention_bias.weight",
        **layer_names(_LAYER, "body.encoder.layers.{}.", "mpnet.encoder.layer.{}."),
    }


_LAYER: Names = {
    **both_rows("attention.qkv", "attention.attn.{q,k,v}"),
    **both("attention.output", "attention.attn.o"),
    **norm("attention_norm", "attention.LayerNorm"),
    **both("feed_forward.inner", "intermediate.dense"),
    **both("feed_forward.outer", "output.dense"),
    **norm("feed_forward_norm", "output.LayerNorm"),
}
MPNET = kinds(
    "mpnet",
    ("MPNetForSequenceClassification", "MPNetForTokenClassification"),
    sizes,
    names,
    ({**both("head.inner", "classifier.dense"), **both("head.labels", "classifier.out_proj")}, LABELS),
    (r"mpnet\.pooler\..*",),
    words=ROBERTA_HEAD,
)
