"""BERT (Devlin et al. 2019), RoBERTa and XLM-R, whose positions begin at row 2 (Liu et al. 2019), and their kin.

These are DistilBERT, ELECTRA, ALBERT and MPNet.
"""

from typing import Any

from weft_export.converters.converter import Converter, HfCheckpoint
from weft_export.converters.encoders import DEFAULT_TEXT, LABELS, bert_names, kinds, no_layer, of_segment, read_sizes
from weft_export.converters.fields import ACTIVATIONS
from weft_export.converters.masked_lm_heads import BERT_HEAD, ROBERTA_HEAD, MaskedLmHead
from weft_export.converters.sources import Names, both, both_rows, from_row, layer_names, norm
from weft_export.families.encoder_only import EncoderOnlyConfig
from weft_export.layers.embeddings import EmbeddingStyle
from weft_export.layers.style import Style

ROBERTA_FIRST = 2
_TYPES = "embeddings.token_type_embeddings.weight"


def sizes(hf: HfCheckpoint, *, tags: bool) -> EncoderOnlyConfig:
    """A classifier reads [CLS] through the pooler, tanh(x W + b). A tagger has one linear layer."""
    return read_sizes(hf, **no_layer(tags=tags))


def roberta_sizes(hf: HfCheckpoint, *, tags: bool) -> EncoderOnlyConfig:
    """Likewise; what BERT calls its pooler is part of RoBERTa's head."""
    return read_sizes(hf, first_row=ROBERTA_FIRST, **no_layer(tags=tags))


_BERT_HEADS = ({**both("head.dense", "bert.pooler.dense"), **LABELS}, LABELS)
_ROBERTA_HEADS = ({**both("head.dense", "classifier.dense"), **both("head.labels", "classifier.out_proj")}, LABELS)
_ROBERTA_BODY = bert_names("roberta.", _TYPES, ROBERTA_FIRST)


def colbert_sizes(hf: HfCheckpoint) -> Any:
    """ColBERT as Stanford's own library saves it: BERT and a linear layer behind each of its places."""
    from weft_export.converters.sentence import embedder_sizes  # noqa: PLC0415 - late: for embedders alone

    return embedder_sizes(sizes(hf, tags=True), hf)


BERT = kinds(
    "bert",
    ("BertForSequenceClassification", "BertForTokenClassification"),
    sizes,
    bert_names("bert.", _TYPES),
    _BERT_HEADS,
    (r"bert\.pooler\..*", r"cls\..*"),
    words=BERT_HEAD,
)
COLBERT = Converter(
    model_type="bert",
    architectures=("HF_ColBERT",),
    family="text_embedder",
    sizes=colbert_sizes,
    names=lambda config: {**bert_names("bert.", _TYPES)(config), "dense.0.weight": "linear.weight"},
    ignored=(r".*\.position_ids", r"bert\.pooler\..*", r"cls\..*"),
    pools=False,
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


_DISTILBERT_EPS = 1e-12


def distilbert_sizes(hf: HfCheckpoint, *, tags: bool) -> EncoderOnlyConfig:
    """DistilBERT (Sanh et al. 2019): BERT without segments, and with a ReLU in its head.

    The sizes have names of their own.
    """
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
        style=Style(
            residual="post", norm_eps=_DISTILBERT_EPS, activation=fields.among("activation", ACTIVATIONS, "gelu")
        ),
        embeddings=EmbeddingStyle(positions=True, norm=True, norm_eps=_DISTILBERT_EPS),
        head_activation=None if tags else "relu",
    )


def distilbert_names(config: EncoderOnlyConfig) -> Names:
    """Layers lie under transformer, and the parts of attention under names of their own."""
    prefix = "distilbert."
    return {
        "body.embeddings.tokens.weight": f"{prefix}embeddings.word_embeddings.weight",
        "body.embeddings.positions.weight": from_row(
            0, f"{prefix}embeddings.position_embeddings.weight", config.max_tokens
        ),
        **norm("body.embeddings.norm", f"{prefix}embeddings.LayerNorm"),
        **layer_names(_DISTILBERT_LAYER, "body.encoder.layers.{}.", f"{prefix}transformer.layer.{{}}."),
    }


_DISTILBERT_LAYER: Names = {
    **both_rows("attention.qkv", "attention.{q_lin,k_lin,v_lin}"),
    **both("attention.output", "attention.out_lin"),
    **norm("attention_norm", "sa_layer_norm"),
    **both("feed_forward.up_proj", "ffn.lin1"),
    **both("feed_forward.down_proj", "ffn.lin2"),
    **norm("feed_forward_norm", "output_layer_norm"),
}
DISTILBERT = kinds(
    "distilbert",
    ("DistilBertForSequenceClassification", "DistilBertForTokenClassification"),
    distilbert_sizes,
    distilbert_names,
    ({**both("head.dense", "pre_classifier"), **LABELS}, LABELS),
    words=MaskedLmHead("vocab_transform", "vocab_layer_norm", "vocab_projector"),
)


def electra_sizes(hf: HfCheckpoint, *, tags: bool) -> EncoderOnlyConfig:
    """ELECTRA (Clark et al. 2020): BERT with words that may be narrower than the layers, and a GELU in its head.

    Words of another width than the layers are widened. The head of a classifier always has the exact GELU.
    """
    fields = hf.fields
    fields.skip("summary_type", "summary_use_proj", "summary_activation")  # of heads that are not converted
    width = fields.whole("embedding_size", 128)
    return read_sizes(
        hf,
        d_embedding=None if width == fields.whole("hidden_size") else width,
        head_activation=None if tags else "gelu",
    )


def electra_names(config: EncoderOnlyConfig) -> Names:
    """BERT's names under another prefix, and the widening."""
    body = bert_names("electra.", "embeddings.token_type_embeddings.weight")
    return {**body(config), **both("body.widening", "electra.embeddings_project")}


ELECTRA = kinds(
    "electra",
    ("ElectraForSequenceClassification", "ElectraForTokenClassification"),
    electra_sizes,
    electra_names,
    _ROBERTA_HEADS,
    words=MaskedLmHead(
        "generator_predictions.dense", "generator_predictions.LayerNorm", "generator_lm_head", activation="gelu"
    ),
)


def albert_sizes(hf: HfCheckpoint, *, tags: bool) -> EncoderOnlyConfig:
    """ALBERT (Lan et al. 2020): one layer that is run many times, over words that are narrower than it.

    Words are always widened, also to a width that is theirs.
    """
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


def albert_names(config: EncoderOnlyConfig) -> Names:
    """Every layer of ours is their only one."""
    words = "albert.embeddings."
    layers = [
        layer_names(_ALBERT_LAYER, f"body.encoder.layers.{index}.", _ALBERT_THEIRS)
        for index in range(config.num_layers)
    ]
    return {
        "body.embeddings.tokens.weight": f"{words}word_embeddings.weight",
        "body.embeddings.positions.weight": of_segment(
            0, config.max_tokens, f"{words}position_embeddings.weight", f"{words}token_type_embeddings.weight"
        ),
        **norm("body.embeddings.norm", f"{words}LayerNorm"),
        **both("body.widening", "albert.encoder.embedding_hidden_mapping_in"),
        **{name: source for layer in layers for name, source in layer.items()},
    }


_ALBERT_THEIRS = "albert.encoder.albert_layer_groups.0.albert_layers.0."
_ALBERT_LAYER: Names = {
    **both_rows("attention.qkv", "attention.{query,key,value}"),
    **both("attention.output", "attention.dense"),
    **norm("attention_norm", "attention.LayerNorm"),
    **both("feed_forward.up_proj", "ffn"),
    **both("feed_forward.down_proj", "ffn_output"),
    **norm("feed_forward_norm", "full_layer_layer_norm"),
}
ALBERT = kinds(
    "albert",
    ("AlbertForSequenceClassification", "AlbertForTokenClassification"),
    albert_sizes,
    albert_names,
    ({**both("head.dense", "albert.pooler"), **LABELS}, LABELS),
    (r"albert\.pooler\..*", r"predictions\..*"),
    words=MaskedLmHead("predictions.dense", "predictions.LayerNorm", "predictions.decoder", "predictions.bias"),
)


_MPNET_FIRST_ROW, _MPNET_MAX_DISTANCE = 2, 128
# transformers takes so many whatever the config says, and fails where the table has fewer.
_MPNET_NUM_BUCKETS = 32


def mpnet_sizes(hf: HfCheckpoint, *, tags: bool) -> EncoderOnlyConfig:
    """MPNet (Song et al. 2020): BERT with T5's relative bias, without segments, and with positions from row 2 on.

    All offsets from 128 on share a bucket.
    """
    hf.fields.only("relative_attention_num_buckets", _MPNET_NUM_BUCKETS)
    return read_sizes(
        hf,
        first_row=_MPNET_FIRST_ROW,
        num_buckets=_MPNET_NUM_BUCKETS,
        max_distance=_MPNET_MAX_DISTANCE,
        **no_layer(tags=tags),
    )


def mpnet_names(config: EncoderOnlyConfig) -> Names:
    """The bias lies in the encoder, and is that of all layers."""
    words = "mpnet.embeddings."
    return {
        "body.embeddings.tokens.weight": f"{words}word_embeddings.weight",
        "body.embeddings.positions.weight": from_row(
            _MPNET_FIRST_ROW, f"{words}position_embeddings.weight", config.max_tokens
        ),
        **norm("body.embeddings.norm", f"{words}LayerNorm"),
        "body.encoder.relative_bias.buckets.weight": "mpnet.encoder.relative_attention_bias.weight",
        **layer_names(_MPNET_LAYER, "body.encoder.layers.{}.", "mpnet.encoder.layer.{}."),
    }


_MPNET_LAYER: Names = {
    **both_rows("attention.qkv", "attention.attn.{q,k,v}"),
    **both("attention.output", "attention.attn.o"),
    **norm("attention_norm", "attention.LayerNorm"),
    **both("feed_forward.up_proj", "intermediate.dense"),
    **both("feed_forward.down_proj", "output.dense"),
    **norm("feed_forward_norm", "output.LayerNorm"),
}
MPNET = kinds(
    "mpnet",
    ("MPNetForSequenceClassification", "MPNetForTokenClassification"),
    mpnet_sizes,
    mpnet_names,
    _ROBERTA_HEADS,
    (r"mpnet\.pooler\..*",),
    words=ROBERTA_HEAD,
)
CONVERTERS = (*BERT, COLBERT, *ROBERTA, *XLM_ROBERTA, *CAMEMBERT, *DISTILBERT, *ELECTRA, *ALBERT, *MPNET)
