"""The message Alignment: what a finished answer attended to, for a caller who asked for it."""

from __future__ import annotations

import math
import time
from contextlib import contextmanager, nullcontext
from typing import TYPE_CHECKING

from weft_proto.v1 import common_pb2
from weft_server.errors import CannotExplain
from weft_server.requests.pictured_ids import PicturedIds
from weft_server.requests.sight import seen_again
from weft_server.requests.transcription import timestamp_ids
from weft_server.requests.word_timings import by_word, columns_of, timed_words_of
from weft_server.rpc.responses import packed
from weft_server.source import Pixels, Sound

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from contextlib import AbstractContextManager
    from typing import Any

    from weft_proto.v1 import transcription_pb2
    from weft_server.models.explainer import AttentionChoice, Explainer, Explanation
    from weft_server.models.model import Model
    from weft_server.models.request_context import RequestContext
    from weft_server.requests.generate import Completed
    from weft_server.sequence import Sequence
    from weft_server.source import Region, Source

_NOT_ASKED: AbstractContextManager[None] = nullcontext()


def reading_of(model: Model, request: Any) -> AbstractContextManager[AttentionChoice | None]:
    """Return the attention that a request asks for, or None. One that asks holds a place until it has ended.

    Raises:
        RequestError: the model cannot show it, or all places are taken.
    """
    return _held(model, request.explain) if request.HasField("explain") else _NOT_ASKED


@contextmanager
def _held(model: Model, asked: common_pb2.Explain) -> Iterator[AttentionChoice]:
    if model.explainer is None:
        raise CannotExplain(model.name)
    reading = model.explainer.resolve(asked)
    with model.explainer.place():
        yield reading


async def explain_text(
    call: RequestContext, alignment: common_pb2.Alignment, model: Model, done: Completed, reading: AttentionChoice
) -> None:
    """Fill in what each token of a finished text attended to, in pictures of its prompt too."""
    rows = model.target_tokenizer.pieces(done.token_ids)
    sequence = done.sequence
    async with seen_again(call, model, _explainer_of(model), sequence.source) as source:
        await explain_rows(alignment, model, reading, sequence, rows, done.token_ids, source)


async def explain_rows(
    alignment: common_pb2.Alignment,
    model: Model,
    reading: AttentionChoice,
    sequence: Sequence,
    rows: list[str],
    token_ids: Iterable[int] = (),
    source: Source | None = None,
) -> None:
    """Fill in what each row of a sequence's finished answer attended to, in the explainer's thread.

    `token_ids` are those that were produced, and `source` is what to, unless it is the sequence's own.
    """
    explainer, read = _explainer_of(model), source or sequence.source

    def fill() -> None:
        explanation = explainer.explain(read, token_ids, reading, sequence.prefix_ids, sequence.adapter)
        _write(alignment, model, reading, read, rows, explanation)

    await explainer.work(fill)
    sequence.times.explained = time.monotonic()


async def explain_words(
    answer: transcription_pb2.TranscribeResponse, model: Model, done: Completed, reading: AttentionChoice
) -> None:
    """Fill in what each word of a recording's only window attended to, and so when it was said."""
    explainer, sequence, tokenizer = _explainer_of(model), done.sequence, model.target_tokenizer

    def fill() -> None:
        sound = sequence.source
        assert isinstance(sound, Sound)
        told = explainer.explain(sound, done.token_ids, reading, sequence.prefix_ids, sequence.adapter)
        words = timed_words_of(done.token_ids, done.text, tokenizer, timestamp_ids(model.manifest.audio))
        explanation = by_word(told, words)
        _write(answer.alignment, model, reading, sound, [word.text for word in words], explanation)
        num_heard = min(sound.num_positions, math.ceil((sound.end_s - sound.start_s) / sound.position_s))
        for word, columns in zip(words, columns_of(explanation.weights, num_heard), strict=True):
            start_s, end_s = (min(sound.start_s + each * sound.position_s, sound.end_s) for each in columns)
            answer.words.add(text=word.text, start_s=start_s, end_s=end_s)

    await explainer.work(fill)
    sequence.times.explained = time.monotonic()


def _explainer_of(model: Model) -> Explainer:
    """The explainer of a model for which `reading_of` has found a place."""
    assert model.explainer is not None, "this model has no explain graph. This is a bug."
    return model.explainer


def _write(
    alignment: common_pb2.Alignment,
    model: Model,
    reading: AttentionChoice,
    source: Source,
    rows: list[str],
    explanation: Explanation,
) -> None:
    alignment.MergeFrom(common_pb2.Alignment(target_tokens=rows, layer=reading.layer, head=reading.head))
    alignment.MergeFromString(packed(common_pb2.Alignment.WEIGHTS_FIELD_NUMBER, explanation.weights))
    # By rounding it may lie a little outside of [0, 1].
    alignment.source_mass.extend(explanation.source_mass.clip(0, 1).tolist())
    if explanation.question is not None:
        weights, mass = explanation.question
        alignment.question_tokens.extend(model.target_tokenizer.pieces(source.explained_ids))
        alignment.MergeFromString(packed(common_pb2.Alignment.QUESTION_WEIGHTS_FIELD_NUMBER, weights))
        alignment.question_mass.extend(mass.clip(0, 1).tolist())
    if isinstance(source, Pixels):
        alignment.grid_rows, alignment.grid_columns = source.grid
        if not source.grid[0]:
            token = model.source_tokenizer.pieces([model.manifest.text.question.image_id])
            alignment.source_tokens.extend(token * source.num_shown)
        if source.region is not None:
            alignment.image_region.CopyFrom(_region(source.region))
    elif isinstance(source, Sound):
        alignment.column_s, alignment.num_columns = source.position_s, source.num_positions
    else:
        alignment.source_tokens.extend(model.source_tokenizer.pieces(source.array.tolist()))
        if isinstance(source, PicturedIds):
            alignment.pictures.extend(_pictures(source))


def _pictures(prompt: PicturedIds) -> Iterator[common_pb2.PictureColumns]:
    for picture in prompt.pictures:
        for grid in picture.grids:
            yield common_pb2.PictureColumns(
                picture=picture.picture,
                first_column=picture.start + grid.first,
                grid_rows=grid.rows,
                grid_columns=grid.columns,
                row_columns=grid.row_places,
                region=None if grid.region is None else _region(grid.region),
            )


def _region(region: Region) -> common_pb2.Region:
    return common_pb2.Region(**region._asdict())
