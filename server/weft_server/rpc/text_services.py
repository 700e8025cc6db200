"""The services that produce text, from Translation to Generation. Each class says only what is its own."""

from __future__ import annotations

from contextlib import aclosing
from functools import partial
from typing import TYPE_CHECKING, Any

from weft_proto.languages import Frame, LanguageError
from weft_proto.sound import num_timestamps, spoken_ids
from weft_proto.tasks import TASKS
from weft_proto.v1 import common_pb2
from weft_server.admission.message_limits import MAX_TEXT_BYTES
from weft_server.errors import InvalidRequest, RequestError
from weft_server.models.request_context import REQUEST_CONTEXT
from weft_server.preprocessing.inputs import InputPart
from weft_server.preprocessing.written_calls import call_id, calls_in, reader_of
from weft_server.requests.generate import Completed, complete, finishing, input_of
from weft_server.requests.score import prompt_log_probs, prompt_scorer
from weft_server.requests.segments import SENTENCES, WINDOWS, Cut, complete_parts
from weft_server.requests.transcription import (
    LanguageDetection,
    Segment,
    language_of,
    segments_of,
    timestamps_of,
    transcribing_of,
)
from weft_server.rpc.alignment import explain_text, explain_words, reading_of
from weft_server.rpc.ctc_transcription import transcribe_ctc
from weft_server.rpc.languages import frame_of
from weft_server.rpc.responses import write_completion
from weft_server.source import Sound

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator

    from weft_proto.v1.methods import Method
    from weft_server.engine.engine import Engine
    from weft_server.models.explainer import AttentionChoice
    from weft_server.models.model import Model
    from weft_server.models.registry import ModelRegistry
    from weft_server.models.request_context import RequestContext
    from weft_server.requests.generate import Read


class TextServicer:
    """A unary method and its streaming twin. They resolve the model, read the input, complete, explain.

    What is particular to a task stands in a class of its own.
    """

    def __init__(self, models: ModelRegistry, method: Method, streaming: Method) -> None:
        self._models, self._method, self._streaming = models, method, streaming

    async def answer(self, request: Any, _context: Any) -> Any:
        """The response of the unary call."""
        async with aclosing(self._events(request, streams=False)) as events:
            return await anext(events)

    async def stream(self, request: Any, _context: Any) -> AsyncGenerator[Any]:
        """The responses of the streaming call, whose message holds the request of the unary one."""
        response = self._streaming.response
        try:
            async with aclosing(self._events(request.request, streams=True)) as events:
                async for event in events:
                    is_delta = isinstance(event, common_pb2.TextDelta)
                    yield response(delta=event) if is_delta else response(final=event)
        except RequestError as error:
            if error.field:
                error.field = f"request.{error.field}"
            raise

    def _frame(self, model: Model, request: Any) -> Frame:  # noqa: ARG002 - a translation's request has languages
        """Return what stands around the ids of a request."""
        return model.languages.plain

    def _scorer(self, model: Model, request: Any) -> Engine | None:  # noqa: ARG002 - a prompt's scores can be asked for
        """Return what scores the prompt of a request that asks for it."""
        return None

    def _cut(self, model: Model, request: Any) -> Cut | None:  # noqa: ARG002 - a translation's request can ask for it
        """Whether and how its input is answered part by part. Then `_read` gives a function that reads the parts."""
        return None

    async def _explain(
        self, call: RequestContext, answer: Any, model: Model, event: Completed, reading: AttentionChoice
    ) -> None:
        """Fill in what the answer attended to."""
        await explain_text(call, answer.alignment, model, event, reading)

    def _complete(self, answer: Any, model: Model, event: Completed, request: Any) -> None:
        """Fill in what only this task's response has."""

    def _read(self, model: Model, request: Any, frame: Frame) -> Any:
        """Check what is particular to the task. Returns the input, or a function that reads it in a worker thread."""
        raise NotImplementedError

    async def _events(self, request: Any, *, streams: bool) -> AsyncGenerator[Any]:
        """TextDeltas as they come, if it streams, then the response."""
        call = REQUEST_CONTEXT.get()
        call.name(request.request_id)
        # Pictures and recordings are not cached, so their requests have no salt.
        call.salt(getattr(request, "cache_salt", ""))
        call.tell_tops(request.num_top_tokens)
        model = await self._models.take(call, request.model, *self._method.tasks)
        if TASKS[model.manifest.task].labels_frames:
            async with aclosing(transcribe_ctc(call, model, request, streams=streams)) as heard:
                async for message in heard:
                    yield message
            return
        with reading_of(model, request) as reading:
            scorer = self._scorer(model, request)
            frame = self._frame(model, request)
            read = self._read(model, request, frame)
            cut = self._cut(model, request)
            answering = partial(complete_parts, call, model, cut) if cut else partial(complete, call, model)
            completion: AsyncGenerator[str | Completed] = answering(
                read,
                request.decoding,
                prefix_ids=frame.prefix,
                streams=streams,
                scores=request.return_scores,
            )
            async with aclosing(completion) as events:
                async for event in events:
                    if not isinstance(event, Completed):
                        yield common_pb2.TextDelta(text=event)
                        continue
                    answer: Any = self._method.response()
                    with finishing(model, event.sequences, event.finish_reason):
                        if reading:
                            await self._explain(call, answer, model, event, reading)
                        prompt = await prompt_log_probs(call, model, scorer, event.sequence.source) if scorer else ()
                        await write_completion(answer.completion, call, model, event)
                    answer.completion.prompt_log_probs.extend(prompt)
                    self._complete(answer, model, event, request)
                    yield answer


class TranslationServicer(TextServicer):
    """Translate and StreamTranslate."""

    def _frame(self, model: Model, request: Any) -> Frame:
        return frame_of(model, request)

    def _cut(self, model: Model, request: Any) -> Cut | None:  # noqa: ARG002 - every model's text can be cut
        return SENTENCES if request.split_sentences else None

    def _read(self, model: Model, request: Any, frame: Frame) -> Any:
        read = _read_text(model, request, "source", "text or token_ids", frame)
        if not request.split_sentences:
            return read
        if request.HasField("token_ids"):
            raise InvalidRequest("split_sentences", "needs a text, not token_ids", "WRONG_INPUT_KIND")
        if request.HasField("explain"):
            raise InvalidRequest("explain", "is not answered with split_sentences: send each sentence by itself")
        return lambda wanted: model.reader.read_sentences(request.text, "text", frame, wanted)


class CaptionServicer(TextServicer):
    """Caption and StreamCaption."""

    def _read(self, model: Model, request: Any, frame: Frame) -> Read:
        if not request.HasField("image"):
            raise InvalidRequest("image", "is required", "EMPTY_INPUT")
        return input_of(model, request, "image", frame)


class AnswerServicer(TextServicer):
    """Answer and StreamAnswer."""

    def _read(self, model: Model, request: Any, frame: Frame) -> Read:  # noqa: ARG002 - nothing stands around a picture
        if not request.HasField("image"):
            raise InvalidRequest("image", "is required", "EMPTY_INPUT")
        kind = request.WhichOneof("question")
        if kind is None:
            raise InvalidRequest("question", "is required: text or token_ids", "EMPTY_INPUT")
        return lambda wanted: model.reader.read_asked(request.image, getattr(request, kind), kind, wanted)


class TranscriptionServicer(TextServicer):
    """Transcribe and StreamTranscribe."""

    def _frame(self, model: Model, request: Any) -> Frame:
        audio = model.manifest.audio
        asked = transcribing_of(request, audio)
        if asked.timestamps and not num_timestamps(audio):
            raise InvalidRequest("timestamps", "is not for this model: it tells no moments")
        if asked.timestamps and request.decoding.stop:
            raise InvalidRequest("decoding.stop", "is not taken with timestamps")
        # A language that the model tells takes as many tokens as any other.
        named = asked.language or (audio.languages[0].tag if audio.languages else "")
        try:
            ids = spoken_ids(audio, named, to_english=asked.to_english, timestamps=asked.timestamps)
        except LanguageError as error:
            raise InvalidRequest(error.field, str(error)) from error
        return Frame(prefix=ids)

    def _cut(self, model: Model, request: Any) -> Cut | None:
        audio = model.manifest.audio
        asked = transcribing_of(request, audio)
        tells = bool(audio.languages) and not asked.language
        return WINDOWS._replace(
            telling=LanguageDetection(audio, asked.to_english, asked.timestamps) if tells else None,
            rule=timestamps_of(audio, model.manifest.text.end_ids) if asked.timestamps else None,
        )

    def _read(self, model: Model, request: Any, frame: Frame) -> Any:  # noqa: ARG002 - nothing stands around sound
        if not request.HasField("audio"):
            raise InvalidRequest("audio", "is required", "EMPTY_INPUT")
        if request.HasField("explain"):
            return lambda wanted: [InputPart("", model.reader.read_window(request.audio, "explain", wanted))]
        return lambda wanted: model.reader.read_windows(request.audio, wanted)

    async def _explain(
        self,
        call: RequestContext,  # noqa: ARG002 - a recording is read once
        answer: Any,
        model: Model,
        event: Completed,
        reading: AttentionChoice,
    ) -> None:
        await explain_words(answer, model, event, reading)

    def _complete(self, answer: Any, model: Model, event: Completed, request: Any) -> None:
        audio = model.manifest.audio
        timestamps = transcribing_of(request, audio).timestamps
        answer.language = language_of(audio, event.sequence.prefix_ids)
        if event.language_probability is not None:
            answer.language_probability = event.language_probability
        for part in event.parts:
            sound = part.sequence.source
            assert isinstance(sound, Sound)
            answer.duration_s = sound.duration_s
            segments = [Segment(sound.start_s, sound.end_s, part.text)]
            if timestamps:
                segments = list(segments_of(part.token_ids, sound, audio, model.target_tokenizer))
            for segment in segments:
                answer.segments.add(**segment._asdict())


class GenerationServicer(TextServicer):
    """Generate and StreamGenerate."""

    def _scorer(self, model: Model, request: Any) -> Engine | None:
        if not request.return_prompt_scores:
            return None
        return prompt_scorer(model, "return_prompt_scores", REQUEST_CONTEXT.get().standing)

    def _read(self, model: Model, request: Any, frame: Frame) -> Read:
        if request.HasField("messages") and not model.reader.takes_messages:
            why = f"are not taken by the model {model.name!r}, which has no chat template: give text or token_ids"
            raise InvalidRequest("messages", why, "WRONG_INPUT_KIND")
        size = REQUEST_CONTEXT.get().usage.request_bytes
        if size > MAX_TEXT_BYTES and not model.reader.takes_pictures:
            why = f"has {size:,} bytes; {model.name!r} takes no pictures, so at most {MAX_TEXT_BYTES:,} are taken"
            raise InvalidRequest("", f"the request {why}", "MESSAGE_TOO_LARGE")
        return _read_text(model, request, "prompt", "text, token_ids or messages", frame)

    def _complete(self, answer: Any, model: Model, event: Completed, request: Any) -> None:  # noqa: ARG002 - as above
        if not request.messages.functions:
            return
        names = frozenset(each.name for each in request.messages.functions)
        for rank, output in enumerate((answer.completion, *answer.completion.others)):
            reader = reader_of(model.reader.call_format, names)
            calls = calls_in((*reader.push(output.text), *reader.finish())) if reader else ()
            for number, call in enumerate(calls):
                output.calls.add(id=call_id(answer.completion.request_id, rank, number), **call._asdict())


def _read_text(model: Model, request: Any, oneof: str, kinds: str, frame: Frame) -> Read:
    kind = request.WhichOneof(oneof)
    if kind is None:
        raise InvalidRequest(oneof, f"is required: {kinds}", "EMPTY_INPUT")
    return input_of(model, request, kind, frame)
