"""The message Alignment: what a finished answer attended to, for a caller who asked for it."""

from __future__ import annotations

from contextlib import contextmanager, nullcontext
from typing import TYPE_CHECKING

from weft_proto.v1 import common_pb2
from weft_server.door.messages import packed
from weft_server.errors import CannotExplain
from weft_server.source import Pixels, Sound

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from contextlib import AbstractContextManager
    from typing import Any

    from weft_server.sequence import Sequence
    from weft_server.serving.completion import Completed
    from weft_server.serving.explainer import Reading
    from weft_server.serving.model import Model

_NOT_ASKED: AbstractContextManager[None] = nullcontext()


def reading_of(model: Model, request: Any) -> AbstractContextManager[Reading | None]:
    """Return the attention that a request asks for, or None. One that asks holds a place until it has ended.

    Raises:
        RequestError: the model cannot show it, or all places are taken.
    """
    return _held(model, request.explain) if request.HasField("explain") else _NOT_ASKED


@contextmanager
def _held(model: Model, asked: common_pb2.Explain) -> Iterator[Reading]:
    if model.explainer is None:
        raise CannotExplain(model.name)
    reading = model.explainer.resolve(asked)
    with model.explainer.place():
        yield reading


async def explain_text(alignment: common_pb2.Alignment, model: Model, done: Completed, reading: Reading) -> None:
    """Fill in what each token of a finished text attended to."""
    assert model.target_tokenizer is not None
    rows = model.target_tokenizer.pieces(done.token_ids)
    sequence = done.sequence
    await explain_rows(alignment, model, reading, sequence, rows, done.token_ids)


async def explain_rows(
    alignment: common_pb2.Alignment,
    model: Model,
    reading: Reading,
    sequence: Sequence,
    rows: list[str],
    token_ids: Iterable[int] = (),
) -> None:
    """Fill in what each row of a sequence's finished answer attended to, in the explainer's thread.

    `token_ids` are those that were produced.
    """
    explainer, source = model.explainer, sequence.source
    assert explainer is not None, "this model has no explain graph. This is a bug."

    def fill() -> None:
        weights, source_mass = explainer.explain(source, token_ids, reading, sequence.prefix_ids, sequence.adapter)
        alignment.MergeFrom(common_pb2.Alignment(target_tokens=rows, layer=reading.layer, head=reading.head))
        alignment.MergeFromString(packed(common_pb2.Alignment.WEIGHTS_FIELD_NUMBER, weights))
        # By rounding it may lie a little outside of [0, 1].
        alignment.source_mass.extend(source_mass.clip(0, 1).tolist())
        if isinstance(source, Pixels):
            alignment.grid_rows, alignment.grid_columns = source.grid
        elif isinstance(source, Sound):
            alignment.column_s, alignment.num_columns = source.position_s, source.num_positions
        else:
            assert model.source_tokenizer is not None
            alignment.source_tokens.extend(model.source_tokenizer.pieces(source.array.tolist()))

    await explainer.work(fill)
