"""DistilBERT (Sanh et al. 2019): BERT without segments, and with a ReLU in its head."""

from weft_export.converters.activations import ACTIVATIONS
from weft_export.converters.converter import HfCheckpoint
from weft_export.converters.encoders import DEFAULT_TEXT, LABELS, kinds
from weft_export.converters.masked_lm_heads import MaskedLmHead
from weft_export.converters.sources import Names, both, both_rows, from_row, layer_names, norm
from weft_export.families.encoder_only import EncoderOnlyConfig
from weft_export.layers.embeddings import EmbeddingStyle
from weft_export.layers.style import Style

_EPS = 1e-12


def sizes(hf: HfCheckpoint, *, tags: bool) -> EncoderOnlyConfig:
    """The sizes have names of their own."""
    fields = hf.fields
    fields.skip("tie_weights_", "tie_word_embeddings", "sinusoidal_pos_embds")  # such positions are stored like others
    return EncoderOnlyConfig(
        vocab_size=fields.whole("vocab_size"),
        num_labels=fields.num_labels(),
        max_tokens=hf.max_tokens(fields.whole("max_position_embeddings", 512), DEFAULT_TEXT),
        d_model=fields.whole("dim"),
        num_heads=fields.whole("n_heads"),
        d_ff=fields.whole("hidden_dim"),
        num_layers=fields.whole("n_layers"),
        style=Style(residual="post", norm_eps=_EPS, activation=fields.among("activation", ACTIVATIONS, "gelu")),
        words=EmbeddingStyle(positions=True, norm=True, norm_eps=_EPS),
        head_activation=None if tags else "relu",
    )


def names(config: EncoderOnlyConfig) -> Names:
    """Layers lie under transformer, and the parts of attention under names of their own."""
    prefix = "distilbert."
    return {
        "body.words.tokens.weight": f"{prefix}embeddings.word_embeddings.weight",
        "body.words.positions.weight": from_row(0, f"{prefix}embeddings.position_embeddings.weight", config.max_tokens),
        **norm("body.words.norm", f"{prefix}embeddings.LayerNorm"),
        **layer_names(_LAYER, "body.encoder.layers.{}.", f"{prefix}transformer.layer.{{}}."),
    }


_LAYER: Names = {
    **both_rows("attention.qkv", "attention.{q_lin,k_lin,v_lin}"),
    **both("attention.output", "attention.out_lin"),
    **norm("attention_norm", "sa_layer_norm"),
    **both("feed_forward.inner", "ffn.lin1"),
    **both("feed_forward.outer", "ffn.lin2"),
    **norm("feed_forward_norm", "output_layer_norm"),
}
DISTILBERT = kinds(
    "distilbert",
    ("DistilBertForSequenceClassification", "DistilBertForTokenClassification"),
    sizes,
    names,
    ({**both("head.inner", "pre_classifier"), **LABELS}, LABELS),
    words=MaskedLmHead("vocab_transform", "vocab_layer_norm", "vocab_projector"),
)
