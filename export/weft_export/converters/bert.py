"""BERT (Devlin et al. 2019), and RoBERTa and XLM-R, whose positions begin at row 2 (Liu et al. 2019)."""

from weft_export.converters.converter import HfCheckpoint
from weft_export.converters.encoders import LABELS, bert_names, kinds, no_layer, read_sizes
from weft_export.converters.masked_lm_heads import BERT_HEAD, ROBERTA_HEAD
from weft_export.converters.sources import both
from weft_export.families.encoder_only import EncoderOnlyConfig

ROBERTA_FIRST = 2
_TYPES = "embeddings.token_type_embeddings.weight"


def sizes(hf: HfCheckpoint, *, tags: bool) -> EncoderOnlyConfig:
    """A classifier reads [CLS] through the pooler, tanh(x W + b). A tagger has one linear layer."""
    return read_sizes(hf, **no_layer(tags=tags))


def roberta_sizes(hf: HfCheckpoint, *, tags: bool) -> EncoderOnlyConfig:
    """Likewise; what BERT calls its pooler is part of RoBERTa's head."""
    return read_sizes(hf, first_row=ROBERTA_FIRST, **no_layer(tags=tags))


_BERT_HEADS = ({**both("head.inner", "bert.pooler.dense"), **LABELS}, LABELS)
_ROBERTA_HEADS = ({**both("head.inner", "classifier.dense"), **both("head.labels", "classifier.out_proj")}, LABELS)
_ROBERTA_BODY = bert_names("roberta.", _TYPES, ROBERTA_FIRST)

BERT = kinds(
    "bert",
    ("BertForSequenceClassification", "BertForTokenClassification"),
    sizes,
    bert_names("bert.", _TYPES),
    _BERT_HEADS,
    (r"bert\.pooler\..*", r"cls\..*"),
    words=BERT_HEAD,
)
ROBERTA, XLM_ROBERTA, CAMEMBERT = (
    kinds(
        model_type,
        (f"{stem}ForSequenceClassification", f"{stem}ForTokenClassification"),
        roberta_sizes,
        _ROBERTA_BODY,
        _ROBERTA_HEADS,
        (r"roberta\.pooler\..*", r"lm_head\..*"),
        prefix="roberta.",
        words=ROBERTA_HEAD,
    )
    for model_type, stem in (("roberta", "Roberta"), ("xlm-roberta", "XLMRoberta"), ("camembert", "Camembert"))
)
