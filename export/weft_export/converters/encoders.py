"""What configs and weights of encoder-only models have in common."""

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from torch import Tensor

from weft_export.converters.converter import Converter, HfCheckpoint
from weft_export.converters.fields import ACTIVATIONS, scoring_of
from weft_export.converters.lengths import bounded, tokenizer_length
from weft_export.converters.masked_lm_heads import MaskedLmHead, head_names, masked_lm_sizes
from weft_export.converters.pairs import in_segments, judge_sizes, segment_names
from weft_export.converters.sources import Names, Source, both, both_rows, computed, from_row, layer_names, norm
from weft_export.families.classifier import IDENTITY
from weft_export.families.encoder_only import EncoderOnlyConfig
from weft_export.layers.embeddings import EmbeddingStyle
from weft_export.layers.style import Style

DEFAULT_TEXT = 512
"""The longest text in tokens, unless one is chosen or the model takes less."""


def read_sizes(hf: HfCheckpoint, *, first_row: int = 0, activation: str = "gelu", **choices: Any) -> EncoderOnlyConfig:
    """Read the sizes of a model of BERT's kind: normed words with learned positions, and post-norm layers.

    first_row: the row of the first position. activation: theirs where nothing says it.
    choices: further fields of the family's config.
    """
    fields = hf.fields
    for name in ("is_decoder", "add_cross_attention", "is_encoder_decoder"):
        fields.only(name, False)
    fields.only("position_embedding_type", "absolute")
    fields.skip("type_vocab_size", "tie_word_embeddings")
    if first_row:
        fields.only("pad_token_id", first_row - 1)
    eps = fields.number("layer_norm_eps", 1e-12)
    longest = fields.whole("max_position_embeddings", 512) - first_row
    given: dict[str, Any] = {
        "vocab_size": fields.whole("vocab_size"),
        "num_labels": fields.num_labels(),
        "max_tokens": hf.max_tokens(longest, DEFAULT_TEXT),
        "d_model": fields.whole("hidden_size"),
        "num_heads": fields.whole("num_attention_heads"),
        "d_ff": fields.whole("intermediate_size"),
        "num_layers": fields.whole("num_hidden_layers"),
        "style": Style(residual="post", norm_eps=eps, activation=fields.among("hidden_act", ACTIVATIONS, activation)),
        "embeddings": EmbeddingStyle(positions=True, norm=True, norm_eps=eps),
    }
    return EncoderOnlyConfig(**given | choices)


def bert_names(prefix: str, types: str | None, first_row: int = 0) -> Callable[[EncoderOnlyConfig], Names]:
    """Return what makes the names of BERT's body under a prefix.

    types: the table of segments, whose first vector is part of every position. None: the model has no segments.
    """

    def names(config: EncoderOnlyConfig) -> Names:
        places = f"{prefix}embeddings.position_embeddings.weight"
        return {
            "body.embeddings.tokens.weight": f"{prefix}embeddings.word_embeddings.weight",
            "body.embeddings.positions.weight": from_row(first_row, places, config.max_tokens)
            if types is None
            else of_segment(first_row, config.max_tokens, places, prefix + types),
            **norm("body.embeddings.norm", f"{prefix}embeddings.LayerNorm"),
            **layer_names(BERT_LAYER, "body.encoder.layers.{}.", f"{prefix}encoder.layer.{{}}."),
        }

    return names


def of_segment(first_row: int, count: int, places: str, types: str) -> Source:
    """Add the vector of the first segment, which a single text is, to each position."""

    def make(table: Tensor, segments: Tensor) -> Tensor:
        return table[first_row : first_row + count] + segments[0]

    return computed(make, places, types)


BERT_LAYER: Names = {
    **both_rows("attention.qkv", "attention.self.{query,key,value}"),
    **both("attention.output", "attention.output.dense"),
    **norm("attention_norm", "attention.output.LayerNorm"),
    **both("feed_forward.up_proj", "intermediate.dense"),
    **both("feed_forward.down_proj", "output.dense"),
    **norm("feed_forward_norm", "output.LayerNorm"),
}


# What saved bodies have besides: poolers, and heads that fill in words. A file with such a head may have others.
_POOLER = r"(.*\.)?pooler\..*"
_OTHER_HEADS = r"(cls\.seq_relationship|sop_classifier|discriminator_predictions|mask_predictions)\..*"
_HEADS = (
    _POOLER,
    r"(cls|lm_head|head|decoder|predictions|generator_\w+|\w+_predictions|vocab_\w+)\..*",
)


LABELS = both("head.labels", "classifier")
"""The one layer of most taggers."""
SPANS = both("head.labels", "qa_outputs")
"""The one layer of most models that extract answers."""


def kinds(
    model_type: str,
    classes: tuple[str, str],
    sizes: Callable[..., EncoderOnlyConfig],
    body: Callable[[Any], Names],
    heads: tuple[Names, Names],
    ignored: tuple[str, ...] = (),
    computed_names: Callable[[Any, HfCheckpoint], Names] | None = None,
    *,
    prefix: str | None = None,
    spans: Names = SPANS,
    words: MaskedLmHead | Callable[[HfCheckpoint], MaskedLmHead],
) -> tuple[Converter, ...]:
    """Return the classifier, the tagger, the extractor of answers, the filler of masks and the embedder of a kind.

    sizes takes the directory, and `tags`: whether they are the tagger's. heads are the names of both heads, and spans
    those of the extractor's. words is the head of the filler, which may follow from the directory. The body's names
    begin with prefix, the model_type unless it is given, where it is not saved alone.
    """
    stem = classes[0].removesuffix("ForSequenceClassification")

    def sizes_of(hf: HfCheckpoint, *, tags: bool) -> EncoderOnlyConfig:
        config = sizes(hf, tags=tags)
        if not tags:
            scoring = scoring_of(hf.fields, config.num_labels)
            return judge_sizes(replace(config, scoring=scoring), hf, body)
        if config.num_labels < 2:
            raise hf.fields.wrong("id2label", "must be of 2 labels at least")
        return replace(config, max_tokens=bounded(config.max_tokens, tokenizer_length(hf.directory), hf))

    def made(index: int) -> Converter:
        return Converter(
            model_type=model_type,
            architectures=(classes[index],),
            family=("encoder_only", "encoder_only_tagger")[index],
            sizes=lambda hf: sizes_of(hf, tags=index == 1),
            names=lambda config: {**segment_names(config, body(config)), **heads[index]},
            ignored=(r".*\.position_ids", r".*\.token_type_ids", *ignored),
            computed_names=computed_names,
        )

    extractor = Converter(
        model_type=model_type,
        architectures=(f"{stem}ForQuestionAnswering",),
        family="encoder_only_extractor",
        # Its head is the tagger's, over two labels.
        sizes=lambda hf: extractor_sizes(sizes(hf, tags=True), hf, body),
        names=lambda config: {**segment_names(config, body(config)), **spans},
        ignored=(r".*\.position_ids", r".*\.token_type_ids", *ignored),
        computed_names=computed_names,
    )

    def head(hf: HfCheckpoint) -> MaskedLmHead:
        return words if isinstance(words, MaskedLmHead) else words(hf)

    def filler_names(config: Any, hf: HfCheckpoint) -> Names:
        more = computed_names(config, hf) if computed_names else {}
        return {**more, **head_names(body, config, head(hf))}

    filler = Converter(
        model_type=model_type,
        architectures=(f"{stem}ForMaskedLM",),
        family="masked_lm",
        # A tagger's sizes have no head, or the one that a masked language model has.
        sizes=lambda hf: masked_lm_sizes(sizes(hf, tags=True), hf, head(hf)),
        names=body,
        ignored=(r".*\.position_ids", r".*\.token_type_ids", _POOLER, _OTHER_HEADS),
        computed_names=filler_names,
    )

    def embedder_sizes_of(hf: HfCheckpoint) -> Any:
        from weft_export.converters.sentence import embedder_sizes  # noqa: PLC0415 - late: for embedders alone

        # A tagger's sizes have no head that is more than one layer.
        return embedder_sizes(sizes(hf, tags=True), hf)

    def computed(config: Any, hf: HfCheckpoint) -> Names:
        from weft_export.converters.sentence import dense_names  # noqa: PLC0415 - same

        return {**(computed_names(config, hf) if computed_names else {}), **dense_names(config, hf)}

    embedder = Converter(
        model_type=model_type,
        architectures=(f"{stem}Model", f"{stem}ForMaskedLM"),
        family="text_embedder",
        sizes=embedder_sizes_of,
        names=body,
        prefix=f"{model_type}." if prefix is None else prefix,
        ignored=(r".*\.position_ids", r".*\.token_type_ids", *_HEADS, *ignored),
        computed_names=computed,
    )
    return made(0), made(1), extractor, filler, embedder


def extractor_sizes(
    config: EncoderOnlyConfig, hf: HfCheckpoint, body: Callable[[EncoderOnlyConfig], Names]
) -> EncoderOnlyConfig:
    """Return what a tagger's sizes are as those of an extractor: logits, of two texts."""
    if config.num_labels != 2:
        raise hf.fields.wrong("id2label", "must be of 2 labels: where an answer starts, and where it ends")
    return in_segments(replace(config, scoring=IDENTITY), hf, body)


def no_layer(*, tags: bool) -> Mapping[str, Any]:
    """Return the choice of a tagger that has one linear layer as its head; of a classifier, none."""
    return {"head_activation": None} if tags else {}
