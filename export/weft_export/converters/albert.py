"""ALBERT (Lan et al. 2020): one layer that is run many times, over words that are narrower than it."""

from weft_export.converters.converter import HfCheckpoint
from weft_export.converters.encoders import LABELS, kinds, no_layer, of_segment, read_sizes
from weft_export.converters.masked_lm_heads import MaskedLmHead
from weft_export.converters.sources import Names, both, both_rows, layer_names, norm
from weft_export.families.encoder_only import EncoderOnlyConfig


def sizes(hf: HfCheckpoint, *, tags: bool) -> EncoderOnlyConfig:
    """Words are always widened, also to a width that is theirs."""
    fields = hf.fields
    fields.only("num_hidden_groups", 1)
    fields.only("inner_group_num", 1)
    fields.skip("net_structure_type", "gap_size", "num_memory_blocks", "down_scale_factor", "layers_to_keep")
    return read_sizes(
        hf,
        d_embedding=fields.whole("embedding_size", 128),
        one_layer=True,
        activation="gelu_new",
        **no_layer(tags=tags),
    )


def names(config: EncoderOnlyConfig) -> Names:
    """Every layer of ours is their only one."""
    words = "albert.embeddings."
    layers = [layer_names(_LAYER, f"body.encoder.layers.{index}.", _THEIRS) for index in range(config.num_layers)]
    return {
        "body.words.tokens.weight": f"{words}word_embeddings.weight",
        "body.words.positions.weight": of_segment(
            0, config.max_tokens, f"{words}position_embeddings.weight", f"{words}token_type_embeddings.weight"
        ),
        **norm("body.words.norm", f"{words}LayerNorm"),
        **both("body.widening", "albert.encoder.embedding_hidden_mapping_in"),
        **{name: source for layer in layers for name, source in layer.items()},
    }


_THEIRS = "albert.encoder.albert_layer_groups.0.albert_layers.0."
_LAYER: Names = {
    **both_rows("attention.qkv", "attention.{query,key,value}"),
    **both("attention.output", "attention.dense"),
    **norm("attention_norm", "attention.LayerNorm"),
    **both("feed_forward.inner", "ffn"),
    **both("feed_forward.outer", "ffn_output"),
    **norm("feed_forward_norm", "full_layer_layer_norm"),
}
ALBERT = kinds(
    "albert",
    ("AlbertForSequenceClassification", "AlbertForTokenClassification"),
    sizes,
    names,
    ({**both("head.inner", "albert.pooler"), **LABELS}, LABELS),
    (r"albert\.pooler\..*", r"predictions\..*"),
    words=MaskedLmHead("predictions.dense", "predictions.LayerNorm", "predictions.decoder", "predictions.bias"),
)
