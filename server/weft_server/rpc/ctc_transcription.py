"""Transcribe with a CTC model: it has a label for each moment, and no decoder."""

from __future__ import annotations

from contextlib import aclosing
from typing import TYPE_CHECKING, Any

from weft_proto.languages import LanguageError
from weft_proto.sound import spoken_ids
from weft_proto.v1 import common_pb2, transcription_pb2
from weft_server.errors import CannotExplain, InvalidRequest
from weft_server.requests.ctc import hear
from weft_server.requests.generate import finishing
from weft_server.requests.segments import joint
from weft_server.rpc.responses import about
from weft_server.sequence import FinishReason

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator
    from collections.abc import Sequence as Many

    from weft_server.models.model import Model
    from weft_server.models.request_context import RequestContext
    from weft_server.requests.ctc import Heard


async def transcribe_ctc(
    call: RequestContext, model: Model, request: transcription_pb2.TranscribeRequest, *, streams: bool
) -> AsyncGenerator[Any]:
    """Yield a TextDelta for each window as it has been heard, if it streams, then the response."""
    _check(model, request)
    text, windows = "", []
    async with aclosing(hear(call, model, lambda wanted: model.reader.read_windows(request.audio, wanted))) as heard:
        async for window in heard:
            windows.append(window)
            delta = joint(text, "", window.text) + window.text
            text += delta
            if streams and delta:
                yield common_pb2.TextDelta(text=delta)
    with finishing(model, [window.sequence for window in windows], FinishReason.STOP):
        answer = _answer(call, model, text, windows, scored=request.return_scores)
    yield answer


def _check(model: Model, request: transcription_pb2.TranscribeRequest) -> None:
    """Raise InvalidRequest for what means nothing to such a model."""
    if not request.HasField("audio"):
        raise InvalidRequest("audio", "is required", "EMPTY_INPUT")
    for field, _ in request.decoding.ListFields():
        if field.name != "greedy":
            raise InvalidRequest(f"decoding.{field.name}", "is not for this model: it has no decoder")
    if request.num_top_tokens:
        raise InvalidRequest("num_top_tokens", "must be 0: this model tells the likeliest label of each moment alone")
    if request.timestamps:
        raise InvalidRequest("timestamps", "is not for this model: its words have their times without it")
    try:
        spoken_ids(model.manifest.audio, request.language, to_english=request.to_english)
    except LanguageError as error:
        raise InvalidRequest(error.field, str(error)) from error
    if request.HasField("explain"):
        raise CannotExplain(model.name)


def _answer(
    call: RequestContext, model: Model, text: str, windows: Many[Heard], *, scored: bool
) -> transcription_pb2.TranscribeResponse:
    spoken = [each for window in windows for each in window.spoken]
    completion = common_pb2.Completion(
        text=text,
        token_ids=[each.label for each in spoken],
        token_log_probs=[each.log_prob for each in spoken] if scored else (),
        tokens=[model.manifest.labels[each.label] for each in spoken] if scored else (),
        finish_reason=common_pb2.FINISH_REASON_STOP,
        decoding=common_pb2.Decoding(greedy=common_pb2.Greedy()),
        **about(call, model, *(window.sequence for window in windows)),
    )
    answer = transcription_pb2.TranscribeResponse(completion=completion, duration_s=windows[0].sound.duration_s)
    for window in windows:
        answer.segments.add(start_s=window.sound.start_s, end_s=window.sound.end_s, text=window.text)
        for word in window.words:
            answer.words.add(**word._asdict())
    return answer
