"""Cross-encoders: classifiers which judge two texts together (Nogueira and Cho 2019), by one label or by several."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from torch import Tensor

from weft_export.checkpoints.formats import MODULES
from weft_export.checkpoints.tokenizer import tokenizer_of, tried
from weft_export.converters.converter import HfCheckpoint
from weft_export.converters.lengths import bounded, tokenizer_length
from weft_export.converters.sentence_files import (
    JUDGE,
    SentenceFiles,
    is_judge,
    modules_of,
    read_sentence_files,
)
from weft_export.converters.sources import Names, Source, computed
from weft_export.converters.text.side import TextSide, read_text_side
from weft_export.errors import CheckpointError
from weft_export.families.classifier import IDENTITY, SIGMOID, SOFTMAX
from weft_export.families.encoder_only import EncoderOnlyConfig

_TORCH = "torch."
_SCORINGS = {"Sigmoid": SIGMOID, "Identity": IDENTITY}
_OF_SEVERAL = {"Identity": SOFTMAX, "Softmax": SOFTMAX, "Sigmoid": SIGMOID}
_PLACES = "body.embeddings.positions.weight"


def takes_pairs(sizes: Any, hf: HfCheckpoint) -> bool:
    """Whether a classifier is a cross-encoder. One with several labels reads one text, unless it is said."""
    said = hf.options.pairs or is_judge(hf.directory)
    return isinstance(sizes, EncoderOnlyConfig) and (sizes.num_labels == 1 or said)


def judge_sizes(
    config: EncoderOnlyConfig, hf: HfCheckpoint, body: Callable[[EncoderOnlyConfig], Names]
) -> EncoderOnlyConfig:
    """Put to a classifier's sizes what a cross-encoder has: how it scores, and where its second segment begins.

    Of several labels the scores are those that the config has already.

    body makes the names of its body.

    Raises:
        CheckpointError: the scores are of a kind that is not supported, or the tokenizer numbers segments otherwise.
    """
    if not takes_pairs(config, hf):
        hf.fields.skip("sentence_transformers", "sbert_ce_default_activation_function")
        # The pipeline of transformers cuts a text where it is told to, and else gives the model all of it.
        most = tokenizer_length(hf.directory) if hf.options.truncate else None
        return replace(config, max_tokens=bounded(config.max_tokens, most, hf))
    files = _judge_files(hf)
    scoring = _scoring(hf, files.activation, config.num_labels) or config.scoring
    longest = bounded(config.max_tokens, files.longest, hf)
    return replace(in_segments(config, hf, body), max_tokens=longest, scoring=scoring)


def in_segments(
    config: EncoderOnlyConfig, hf: HfCheckpoint, body: Callable[[EncoderOnlyConfig], Names]
) -> EncoderOnlyConfig:
    """Put to a config where the second of two texts begins, if the model knows segments; body as in judge_sizes.

    Raises:
        CheckpointError: the tokenizer numbers segments otherwise.
    """
    places = body(config).get(_PLACES)
    # `of_segment` makes them of two tables.
    if not isinstance(places, Source) or len(places.names) != 2 or hf.fields.whole("type_vocab_size", 2) < 2:
        return config
    # What a tokenizer's class is found by.
    of_class = {name: hf.fields.raw(name) for name in ("model_type", "tokenizer_class")}
    side = read_text_side(hf.directory, of_class, config.vocab_size)
    if not side.has_segments:
        hf.fields.note("its tokenizer gives no token_type_ids, so both texts of a pair are the first segment")
        return config
    return replace(config, embeddings=replace(config.embeddings, separator_id=separator_of(side, has_segments=True)))


def _judge_files(hf: HfCheckpoint) -> SentenceFiles:
    path = hf.directory / MODULES
    files = read_sentence_files(hf, JUDGE)
    kinds = [kind for kind, _ in modules_of(hf.directory)] if path.exists() else ["Transformer"]
    if kinds != ["Transformer"]:
        raise CheckpointError(f"{path} lists {', '.join(kinds)}; of a {JUDGE}, a Transformer alone is supported")
    return files


def _scoring(hf: HfCheckpoint, said: str | None, num_labels: int) -> str | None:
    """Return how sentence-transformers makes scores of logits, if it says so.

    said: by a file of its own, which counts before config.json.
    """
    part = hf.fields.part("sentence_transformers")
    older = hf.fields.raw("sbert_ce_default_activation_function")
    said = said or part.raw("activation_fn") or older
    part.skip("version")
    if said is None:
        return None
    known = _SCORINGS if num_labels == 1 else _OF_SEVERAL
    # A name of somebody else's is code, which is not run.
    word = str(said).removeprefix(_TORCH).rpartition(".")[2]
    if word not in known or not str(said).startswith(_TORCH):
        wanted = f"torch's {' and '.join(known)} are supported"
        raise CheckpointError(f"activation_fn of sentence-transformers is {said!r:.60}; {wanted}")
    if num_labels > 1 and word == "Identity":
        hf.fields.note("sentence-transformers gives logits of several labels; scores are their softmax")
    return known[word]


def separator_of(side: TextSide, *, has_segments: bool = False) -> int | None:
    """Return the first token that a tokenizer puts between two texts, if it puts any.

    Raises:
        CheckpointError: the model has segments, and they are not what stands before and behind it.
    """
    name = side.source_tokenizer
    tokenizer = tokenizer_of(name, side.files[name])
    pair = tried("two texts cannot be tokenized", lambda: tokenizer.encode("a", "b"))
    of_first = [place for place, number in enumerate(pair.sequence_ids) if number == 0]
    behind = (of_first[-1] if of_first else -1) + 1
    is_between = 0 < behind < len(pair.ids) and pair.sequence_ids[behind] is None
    separator = pair.ids[behind] if is_between else None
    if has_segments:
        expected = [int(separator in pair.ids[:place]) for place in range(len(pair.ids))]
        if pair.type_ids != expected:
            raise CheckpointError(f"{name} does not number two texts as segments that one token divides")
    return separator


def segment_names(config: EncoderOnlyConfig, body: Names) -> Names:
    """Return the names of a body, and of the second segment's vector if it has one: what it has beyond the first's."""
    if config.embeddings.separator_id is None:
        return body
    places = body[_PLACES]
    assert isinstance(places, Source)
    types = places.names[1]

    def difference(segments: Tensor) -> Tensor:
        return segments[1] - segments[0]

    return {**body, "body.embeddings.second_segment": computed(difference, types)}
