"""DeBERTa in its versions 2 and 3 (He et al. 2021; He et al. 2023): attention that also goes by offsets."""

from torch import Tensor
from torch.nn import functional

from weft_export.converters.converter import HfCheckpoint
from weft_export.converters.encoders import DEFAULT_TEXT, LABELS, kinds
from weft_export.converters.fields import ACTIVATIONS
from weft_export.converters.masked_lm_heads import BERT_HEAD, MaskedLmHead
from weft_export.converters.sources import Names, Source, both, both_rows, computed, from_row, layer_names, norm
from weft_export.errors import CheckpointError
from weft_export.families.encoder_only import EncoderOnlyConfig
from weft_export.layers.disentangled import Disentangled
from weft_export.layers.embeddings import EmbeddingStyle
from weft_export.layers.style import Style

_TERMS = {"c2p", "p2c"}


def sizes(hf: HfCheckpoint, *, tags: bool) -> EncoderOnlyConfig:
    """Version 3 has no positions in its words. Large models of version 2 have a convolution, which ours has not."""
    fields = hf.fields
    d_model, eps = fields.whole("hidden_size"), fields.number("layer_norm_eps", 1e-7)
    fields.only("relative_attention", True)
    if "relative_attention" not in fields:
        raise fields.wrong("relative_attention", "must be true")
    fields.only("conv_kernel_size", 0)
    fields.only("type_vocab_size", 0)
    fields.only("embedding_size", d_model)
    fields.only("attention_head_size", d_model // max(fields.whole("num_attention_heads"), 1))
    fields.only("pooler_hidden_size", d_model)
    fields.skip("share_att_key", "norm_rel_ebd")  # read for the names
    fields.skip("legacy")  # read for the head of words
    fields.skip("tie_word_embeddings", "conv_act", "conv_groups", "cls_dropout", "summary_type")
    for name in ("is_decoder", "is_encoder_decoder"):
        fields.only(name, False)
    longest = fields.whole("max_position_embeddings", 512)
    pooled = fields.among("pooler_hidden_act", {**ACTIVATIONS, "tanh": "tanh"}, "gelu")
    return EncoderOnlyConfig(
        vocab_size=fields.whole("vocab_size"),
        num_labels=fields.num_labels(),
        max_tokens=hf.max_tokens(longest, DEFAULT_TEXT),
        d_model=d_model,
        num_heads=fields.whole("num_attention_heads"),
        d_ff=fields.whole("intermediate_size"),
        num_layers=fields.whole("num_hidden_layers"),
        style=Style(residual="post", norm_eps=eps, activation=fields.among("hidden_act", ACTIVATIONS, "gelu")),
        embeddings=EmbeddingStyle(
            positions=fields.flag("position_biased_input", default=True), norm=True, norm_eps=eps
        ),
        disentangled=_terms(hf, longest),
        head_activation=None if tags else pooled,
    )


def _terms(hf: HfCheckpoint, longest: int) -> Disentangled:
    fields = hf.fields
    given = fields.raw("pos_att_type") or []
    terms = given.lower().split("|") if isinstance(given, str) else given
    if not isinstance(terms, list) or not {str(term).strip() for term in terms} <= _TERMS or not terms:
        raise fields.wrong("pos_att_type", "must have c2p or p2c, or both")
    terms = [str(term).strip() for term in terms]
    # -1 stands for what is not set.
    farthest = fields.integer("max_relative_positions", -1)
    farthest = longest if farthest < 1 else farthest
    buckets = fields.integer("position_buckets", -1)
    if buckets > 0 and farthest <= buckets // 2 + 1:
        raise fields.wrong("max_relative_positions", "must be more than half of position_buckets, and one")
    return Disentangled(
        num_buckets=buckets if buckets > 0 else farthest,
        max_distance=farthest,
        content_to_position="c2p" in terms,
        position_to_content="p2c" in terms,
    )


def names(config: EncoderOnlyConfig) -> Names:
    """BERT's names but for attention."""
    return {
        "body.embeddings.tokens.weight": "deberta.embeddings.word_embeddings.weight",
        "body.embeddings.positions.weight": from_row(
            0, "deberta.embeddings.position_embeddings.weight", config.max_tokens
        ),
        **norm("body.embeddings.norm", "deberta.embeddings.LayerNorm"),
        **layer_names(_LAYER, "body.encoder.layers.{}.", "deberta.encoder.layer.{}."),
    }


def offset_names(config: EncoderOnlyConfig, hf: HfCheckpoint) -> Names:
    """Offsets are projected as tokens are, or by matrices of their own; config.json says which."""
    fields = hf.fields
    shared = fields.flag("share_att_key", default=False)
    normed = "layer_norm" in fields.word("norm_rel_ebd", "none").lower()
    theirs, ours = "deberta.encoder.layer.{}.attention.self.", "body.encoder.layers.{}.attention."
    key, query = ("key_proj", "query_proj") if shared else ("pos_key_proj", "pos_query_proj")
    return {
        f"{ours}position_keys": _offsets(config, theirs + key, normed=normed),
        f"{ours}position_queries": _offsets(config, theirs + query, normed=normed),
    }


def _offsets(config: EncoderOnlyConfig, projection: str, *, normed: bool) -> Source:
    """Project the vectors of offsets, which are the same for every text: [h, 2 buckets, head_dim]."""
    terms = config.disentangled
    if terms is None:
        raise CheckpointError("a DeBERTa has offsets. This is a bug.")
    count = 2 * terms.num_buckets

    def make(table: Tensor, weight: Tensor, bias: Tensor, *norms: Tensor) -> Tensor:
        vectors = table[:count]
        if norms:
            scale, shift = norms
            vectors = functional.layer_norm(vectors, vectors.shape[1:], scale, shift, config.style.norm_eps)
        heads = functional.linear(vectors, weight, bias).view(count, config.num_heads, -1)
        return heads.transpose(0, 1)

    norms = [f"deberta.encoder.LayerNorm.{part}" for part in ("weight", "bias")] if normed else []
    return computed(make, "deberta.encoder.rel_embeddings.weight", f"{projection}.weight", f"{projection}.bias", *norms)


_LAYER: Names = {
    **both_rows("attention.qkv", "attention.self.{query_proj,key_proj,value_proj}"),
    **both("attention.output", "attention.output.dense"),
    **norm("attention_norm", "attention.output.LayerNorm"),
    **both("feed_forward.up_proj", "intermediate.dense"),
    **both("feed_forward.down_proj", "output.dense"),
    **norm("feed_forward_norm", "output.LayerNorm"),
}


def _words(hf: HfCheckpoint) -> MaskedLmHead:
    """What the authors' files have, or what transformers had instead. In theirs, logits are always of the table."""
    if hf.fields.flag("legacy", default=True):
        return BERT_HEAD
    theirs = "lm_predictions.lm_head"
    return MaskedLmHead(f"{theirs}.dense", f"{theirs}.LayerNorm", None, f"{theirs}.bias")


DEBERTA = kinds(
    "deberta-v2",
    ("DebertaV2ForSequenceClassification", "DebertaV2ForTokenClassification"),
    sizes,
    names,
    ({**both("head.dense", "pooler.dense"), **LABELS}, LABELS),
    (r"lm_predictions\..*", r"mask_predictions\..*", r"pooler\..*", r"cls\..*"),
    offset_names,
    prefix="deberta.",
    words=_words,
)
CONVERTERS = DEBERTA
