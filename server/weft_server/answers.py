"""Builds the messages that answers share: Completion, Alignment, Timings."""

from __future__ import annotations

import asyncio
import time
from contextlib import contextmanager, nullcontext
from functools import lru_cache
from typing import TYPE_CHECKING

from google.protobuf import duration_pb2

from weft_proto.v1 import common_pb2
from weft_server.decoding import decoding_proto
from weft_server.errors import CannotExplain
from weft_server.sequence import FinishReason

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from contextlib import AbstractContextManager
    from typing import Any

    import numpy as np

    from weft_server.call import Call
    from weft_server.completion import Completed
    from weft_server.explainer import Reading
    from weft_server.model import Model
    from weft_server.sequence import Sequence

_REASONS = {
    FinishReason.STOP: common_pb2.FINISH_REASON_STOP,
    FinishReason.STOP_STRING: common_pb2.FINISH_REASON_STOP_STRING,
    FinishReason.LENGTH: common_pb2.FINISH_REASON_LENGTH,
}

_NOT_ASKED: AbstractContextManager[None] = nullcontext()


def completion_proto(call: Call, model: Model, done: Completed) -> common_pb2.Completion:
    """The finished answer as a message."""
    assert done.sequence.decoding is not None
    assert model.target_tokenizer is not None
    scored = done.sequence.wants_scores
    return common_pb2.Completion(
        text=done.text,
        token_ids=done.token_ids,
        token_log_probs=done.log_probs if scored else (),
        tokens=model.target_tokenizer.pieces(done.token_ids) if scored else (),
        finish_reason=_REASONS[done.finish_reason],
        decoding=decoding_proto(done.sequence.decoding),
        usage=common_pb2.Usage(input_tokens=done.sequence.num_input_tokens, output_tokens=len(done.token_ids)),
        timings=timings_proto(done.sequence),
        model=resolved_proto(model.name, model.version),
        request_id=call.request_id,
    )


def timings_proto(sequence: Sequence) -> common_pb2.Timings:
    """Where the time went. An answer cut by a stop string ends now; the engine may not have noticed yet."""
    times = sequence.times
    finished = (times.finished or time.monotonic()) if sequence.decoding else times.first_token
    return common_pb2.Timings(
        queue=_duration(times.admitted - times.accepted),
        prefill=_duration(times.first_token - times.admitted),
        decode=_duration(max(0.0, finished - times.first_token)),
    )


@lru_cache(64)
def resolved_proto(name: str, version: int) -> common_pb2.ResolvedModel:
    """The model that answered; the same message each time, not to be changed."""
    return common_pb2.ResolvedModel(name=name, version=version)


@contextmanager
def finishing(model: Model, sequence: Sequence, reason: FinishReason) -> Iterator[None]:
    """Count an answer that the engine has ended once nothing is left to do for it, or as one that nobody got."""
    try:
        yield
    except BaseException as error:
        model.metrics.wasted_tokens.inc(sequence.num_output_tokens)
        if isinstance(error, asyncio.CancelledError):
            model.metrics.cancelled("explain")
        raise
    model.metrics.finished(reason.value)


def reading_of(model: Model, request: Any) -> AbstractContextManager[Reading | None]:
    """Which attention a request asks for, None when it doesn't; one that does holds a place until it has ended.

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
    await explain_rows(alignment, model, reading, done.sequence.inputs, rows, done.token_ids)


async def explain_rows(
    alignment: common_pb2.Alignment,
    model: Model,
    reading: Reading,
    inputs: np.ndarray,
    rows: list[str],
    token_ids: Iterable[int] = (),
) -> None:
    """Fill in what each row of a finished answer attended to, in the explainer's thread; `token_ids` were produced."""
    explainer = model.explainer
    assert explainer is not None, "this model has no explain graph. This is a bug."

    def fill() -> None:
        weights, source_mass = explainer.explain(inputs, token_ids, reading)
        alignment.MergeFrom(common_pb2.Alignment(target_tokens=rows, layer=reading.layer, head=reading.head))
        alignment.MergeFromString(_packed(common_pb2.Alignment.WEIGHTS_FIELD_NUMBER, weights))
        # It may be beyond by rounding.
        alignment.source_mass.extend(source_mass.clip(0, 1).tolist())
        if inputs.ndim == 1:
            assert model.source_tokenizer is not None
            alignment.source_tokens.extend(model.source_tokenizer.pieces(inputs.tolist()))
        else:
            alignment.grid_rows, alignment.grid_columns = model.reader.grid

    await explainer.work(fill)


def _packed(field: int, values: np.ndarray) -> bytes:
    """A repeated float field on the wire: a million floats one by one would hold the interpreter for 0.1 s."""
    size, length = values.size * 4, bytearray()
    while size >= 1 << 7:
        length.append(size & 0x7F | 0x80)
        size >>= 7
    return bytes([field << 3 | 2, *length, size]) + values.astype("<f4").tobytes()


def _duration(seconds: float) -> duration_pb2.Duration:
    # The library's own FromNanoseconds takes five times as long, three times an answer.
    whole, rest = divmod(int(seconds * 1e9), 1_000_000_000)
    return duration_pb2.Duration(seconds=whole, nanos=rest)
