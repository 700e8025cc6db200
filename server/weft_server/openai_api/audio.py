"""POST /v1/audio/transcriptions and /translations: a recording to what is said, or to that in English."""

from __future__ import annotations

from contextlib import aclosing
from functools import partial
from typing import TYPE_CHECKING, Any, Literal

import msgspec

from weft_proto.v1 import common_pb2, model_pb2, transcription_pb2
from weft_proto.v1.methods import METHODS
from weft_server.api.aside import aside
from weft_server.api.http_messages import HttpResponse
from weft_server.errors import InvalidRequest
from weft_server.openai_api.decoding import NUMBER_FIELDS, numbers_of
from weft_server.openai_api.events import DONE, event, streamed
from weft_server.openai_api.fields import Field, NotTaken, RequestFields
from weft_server.openai_api.forms import read_form
from weft_server.openai_api.log_probs import token_log_probs
from weft_server.openai_api.model_names import selector_of
from weft_server.openai_api.priority import PRIORITY_FIELD, claim
from weft_server.openai_api.subtitles import srt, vtt
from weft_server.openai_api.text_requests import MODEL_FIELD

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator

    from weft_server.api.http_messages import Response
    from weft_server.openai_api.api_request import ApiRequest

HEARD_PATH, ENGLISH_PATH = "/v1/audio/transcriptions", "/v1/audio/translations"
# Formats that say when something is said.
_TIMED = {"srt": srt, "vtt": vtt}
_FORMATS = Literal["json", "text", "srt", "vtt", "verbose_json"]
_BASE = (
    MODEL_FIELD,
    Field("response_format", _FORMATS | None, "`json`, `text`, `srt`, `vtt` or `verbose_json`. Default `json`."),
    Field("stream", bool | None, "Whether the text comes as server-sent events. For `json`."),
    *NUMBER_FIELDS,
    Field("max_tokens", int | None, "The most tokens of each part of the recording."),
    PRIORITY_FIELD,
)
_REFUSED = (
    NotTaken("prompt", "the model is given no text", ("",)),
    NotTaken("chunking_strategy", "a long recording is cut where it is quiet", ("auto",)),
)
HEARD_FIELDS = RequestFields(
    "TranscriptionRequest",
    (
        *_BASE,
        Field("language", str | None, "What is spoken, as a BCP-47 tag. Default: the model's, or it is told."),
        Field(
            "timestamp_granularities",
            list[Literal["word", "segment"]] | None,
            "`word`, `segment` or both, for `verbose_json`. "
            "Words are for a recording of one window, unless the model has CTC.",
        ),
        Field("include", list[Literal["logprobs"]] | None, "`logprobs`: of each token. For `json`."),
    ),
    (
        *_REFUSED,
        NotTaken("keywords", "the model is given no text"),
        NotTaken("languages", "give one `language`"),
        NotTaken("known_speaker_names", "speakers are not told apart"),
        NotTaken("known_speaker_references", "speakers are not told apart"),
    ),
)
ENGLISH_FIELDS = RequestFields("AudioTranslationRequest", _BASE, _REFUSED)
# Those that come several times.
_LISTS = {
    "timestamp_granularities", "include", "keywords", "languages", "known_speaker_names", "known_speaker_references",
}  # fmt: skip
PARAMS = {"audio": "file"}


async def transcriptions(http: ApiRequest) -> Response:
    """Answer with what is said."""
    return await _transcribe(http, HEARD_FIELDS, to_english=False)


async def translations(http: ApiRequest) -> Response:
    """Answer with what is said, in English."""
    return await _transcribe(http, ENGLISH_FIELDS, to_english=True)


async def _transcribe(http: ApiRequest, fields: RequestFields, *, to_english: bool) -> Response:
    form = await aside(len(http.body), partial(read_form, http.body, http.content_type))
    file, asked = _read(form, fields)
    claim(http, asked)
    shape = asked.response_format or "json"
    granularities = set(getattr(asked, "timestamp_granularities", None) or ())
    is_scored = "logprobs" in (getattr(asked, "include", None) or ())
    _check(asked, shape, granularities, is_scored=is_scored)
    request = transcription_pb2.TranscribeRequest(
        model=selector_of(asked.model),
        audio=common_pb2.Audio(data=file),
        request_id=http.request_id,
        language=getattr(asked, "language", None) or "",
        to_english=to_english,
        decoding=numbers_of(asked),
        return_scores=is_scored,
    )
    if shape in {*_TIMED, "verbose_json"}:
        card = await http.caller.unary(METHODS["GetModel"], model_pb2.GetModelRequest(model=request.model))
        if granularities != {"word"}:
            request.timestamps = card.model.tells_timestamps
        if "word" in granularities and not card.model.times_words:
            request.explain.SetInParent()
    if asked.stream:
        twin = transcription_pb2.StreamTranscribeRequest(request=request)
        return await streamed(
            _events(http, http.caller.stream(METHODS["StreamTranscribe"], twin), is_scored=is_scored), PARAMS
        )
    answer = await http.caller.unary(METHODS["Transcribe"], request)
    if shape == "json":
        return _json({"text": answer.completion.text} | _more(http, answer, is_scored=is_scored))
    if shape == "verbose_json":
        return _json(_verbose(answer, granularities, to_english=to_english))
    said = [segment for segment in answer.segments if segment.text.strip()]
    text = _TIMED[shape](said) if shape in _TIMED else f"{answer.completion.text}\n"
    return HttpResponse(200, text.encode(), content_type="text/plain; charset=utf-8")


def _read(form: dict[str, list[bytes]], fields: RequestFields) -> tuple[bytes, Any]:
    """Return the file of a form, and its other fields."""
    files = form.pop("file", [])
    if len(files) != 1:
        raise InvalidRequest("file", "is required, once", "EMPTY_INPUT")
    texts: dict[str, Any] = {}
    for name, values in form.items():
        # Clients write the name of a list with brackets behind it. Of what is no list, that would be a second name.
        plain = name.removesuffix("[]")
        if plain != name and plain not in _LISTS:
            raise InvalidRequest(plain, "is no list: its name has no brackets")
        try:
            said = [each.decode() for each in values]
        except UnicodeDecodeError as error:
            raise InvalidRequest(plain, "is no UTF-8") from error
        if plain in _LISTS:
            texts.setdefault(plain, []).extend(said)
        elif len(said) > 1:
            raise InvalidRequest(plain, "is given more than once")
        else:
            texts[plain] = said[0]
    return files[0], fields.convert(texts)


def _check(asked: Any, shape: str, granularities: set[str], *, is_scored: bool) -> None:
    if asked.stream and shape != "json":
        raise InvalidRequest("response_format", "must be json for a stream", "NOT_SUPPORTED")
    if granularities and shape != "verbose_json":
        raise InvalidRequest("timestamp_granularities", "needs the response_format verbose_json")
    if is_scored and shape != "json":
        raise InvalidRequest("include", "needs the response_format json")


async def _events(http: ApiRequest, responses: AsyncGenerator[Any], *, is_scored: bool) -> AsyncGenerator[bytes]:
    async with aclosing(responses):
        async for response in responses:
            if response.WhichOneof("event") == "delta":
                yield event({"type": "transcript.text.delta", "delta": response.delta.text})
            else:
                done = {"type": "transcript.text.done", "text": response.final.completion.text}
                yield event(done | _more(http, response.final, is_scored=is_scored))
    yield DONE


def _more(http: ApiRequest, answer: Any, *, is_scored: bool) -> dict[str, Any]:
    usage = answer.completion.usage
    counts = {"input_tokens": usage.input_tokens, "output_tokens": usage.output_tokens}
    more: dict[str, Any] = {"usage": {"type": "tokens", **counts, "total_tokens": sum(counts.values())}}
    if is_scored:
        more["logprobs"] = token_log_probs(answer.completion, http.spelling_of(answer.completion.model))
    return more


def _verbose(answer: Any, granularities: set[str], *, to_english: bool) -> dict[str, Any]:
    whole: dict[str, Any] = {
        "task": "translate" if to_english else "transcribe",
        "language": answer.language,
        "duration": _seconds(answer.duration_s),
        "text": answer.completion.text,
        "usage": {"type": "duration", "seconds": _seconds(answer.duration_s)},
    }
    if granularities != {"word"}:
        whole["segments"] = [
            {"id": index, "start": _seconds(each.start_s), "end": _seconds(each.end_s), "text": each.text}
            for index, each in enumerate(answer.segments)
        ]
    if "word" in granularities:
        whole["words"] = [
            {"word": each.text, "start": _seconds(each.start_s), "end": _seconds(each.end_s)} for each in answer.words
        ]
    return whole


def _json(whole: dict[str, Any]) -> HttpResponse:
    return HttpResponse(200, msgspec.json.encode(whole))


def _seconds(time: float) -> float:
    """A time to the millisecond. As a float of 32 bits it would have nine wrong digits more."""
    return round(time, 3)
