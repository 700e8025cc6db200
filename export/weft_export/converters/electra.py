"""ELECTRA (Clark et al. 2020): BERT with words that may be narrower than the layers, and a GELU in its head."""

from weft_export.converters.converter import HfCheckpoint
from weft_export.converters.encoders import LABELS, bert_names, kinds, read_sizes
from weft_export.converters.masked_lm_heads import MaskedLmHead
from weft_export.converters.sources import Names, both
from weft_export.families.encoder_only import EncoderOnlyConfig


def sizes(hf: HfCheckpoint, *, tags: bool) -> EncoderOnlyConfig:
    """Words of another width than the layers are widened. The head of a classifier always has the exact GELU."""
    fields = hf.fields
    fields.skip("summary_type", "summary_use_proj", "summary_activation")  # of heads that are not converted
    width = fields.whole("embedding_size", 128)
    return read_sizes(
        hf,
        d_embedding=None if width == fields.whole("hidden_size") else width,
        head_activation=None if tags else "gelu",
    )


def names(config: EncoderOnlyConfig) -> Names:
    """BERT's names under another prefix, and the widening."""
    body = bert_names("electra.", "embeddings.token_type_embeddings.weight")
    return {**body(config), **both("body.widening", "electra.embeddings_project")}


ELECTRA = kinds(
    "electra",
    ("ElectraForSequenceClassification", "ElectraForTokenClassification"),
    sizes,
    names,
    ({**both("head.inner", "classifier.dense"), **both("head.labels", "classifier.out_proj")}, LABELS),
    words=MaskedLmHead(
        "generator_predictions.dense", "generator_predictions.LayerNorm", "generator_lm_head", activation="gelu"
    ),
)
