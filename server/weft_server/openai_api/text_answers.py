"""How produced text goes back: as one object or as chunks, for chats and for completions, from the same messages."""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from contextlib import aclosing
from functools import cache, partial
from typing import TYPE_CHECKING, Any

import msgspec
from google.protobuf.json_format import MessageToDict

from weft_proto.v1 import common_pb2
from weft_server.api.aside import aside
from weft_server.openai_api.batch import merged
from weft_server.openai_api.events import DONE, event
from weft_server.openai_api.log_probs import chat_log_probs, completion_log_probs
from weft_server.openai_api.model_names import name_of
from weft_server.openai_api.usage import usage_of

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Sequence

    from weft_server.openai_api.api_request import ApiRequest, Spelling

FINISH_REASONS = {
    common_pb2.FINISH_REASON_STOP: "stop",
    common_pb2.FINISH_REASON_STOP_STRING: "stop",
    common_pb2.FINISH_REASON_LENGTH: "length",
}

_TEXT = msgspec.json.Encoder()
# A byte of a message with scores takes as long to write as so many bytes of text.
COST_OF_SCORES = 32


class TextAnswers(ABC):
    """The answers of one request. What differs between a chat and a completion stands in a class of its own."""

    id_prefix: str
    object: str
    chunk_object: str

    def __init__(self, http: ApiRequest, asked: Any, *, scored: bool) -> None:
        """`asked` are the fields of the request. `scored` answers have log-probabilities."""
        self._http, self._scored, self._model = http, scored, asked.model
        self._include_usage = bool(asked.stream_options and asked.stream_options.include_usage)
        self._id, self._created = f"{self.id_prefix}-{http.request_id}", int(time.time())
        # Of the calls of a stream that have ended.
        self._usages: list[common_pb2.Usage] = []
        # Of the model that answered, once it is known.
        self._spelling: Spelling | None = None

    @abstractmethod
    def _whole_choice(self, index: int, output: Any) -> dict[str, Any]:
        """A choice of an answer that is sent at once."""

    @abstractmethod
    def _opening(self, index: int) -> list[dict[str, Any]]:
        """The choices of what comes before the first text."""

    @abstractmethod
    def _delta(self, index: int, text: str) -> dict[str, Any]:
        """The choice of a chunk with text."""

    @abstractmethod
    def _closing(self, index: int, output: Any) -> dict[str, Any]:
        """The choice of a chunk that ends one."""

    def _said(self, index: int, output: Any) -> list[dict[str, Any]]:
        """The choices of what comes behind an opening, where a text comes whole."""
        return [self._delta(index, output.text)] if output.text else []

    async def whole(self, responses: Sequence[Any]) -> bytes:
        """Return the answer of one or several calls, whose choices stand one behind the other.

        A large one is written aside, choice by choice, so that others' come between.
        """
        outputs = [
            (first_index(number, response) + rank, output)
            for number, response in enumerate(responses)
            for rank, output in enumerate(self._outputs(response))
        ]
        usage = usage_of(response.completion.usage for response in responses)
        size = self._size(responses)

        def written(index: int, output: Any) -> msgspec.Raw:
            return msgspec.Raw(msgspec.json.encode(self._whole_choice(index, output)))

        def joined() -> bytes:
            answer = self._object(self.object, choices) | {"usage": usage} | _about(responses[0])
            return msgspec.json.encode(answer)

        choices = [await aside(size, partial(written, index, output)) for index, output in outputs]
        return await aside(size, joined)

    async def events(self, calls: Sequence[AsyncGenerator[Any]]) -> AsyncGenerator[bytes]:
        """Yield the events of streamed calls, one for each prompt, and `[DONE]` at their end."""
        prompts = [self._events(number, responses) for number, responses in enumerate(calls)]
        events = prompts[0] if len(prompts) == 1 else merged(prompts, self._http.most_together)
        async with aclosing(events):
            async for each in events:
                yield each
        if self._include_usage:
            yield self._chunk([], usage=usage_of(self._usages))
        yield DONE

    async def _events(self, number: int, responses: AsyncGenerator[Any]) -> AsyncGenerator[bytes]:
        """Yield the events of one prompt. Text comes in pieces where it has one answer, whose index is its number."""
        # All chunks with text of a choice are the same but for the text.
        head, _, tail = self._chunk([self._delta(number, "")]).rpartition(b'""')
        has_text = False
        async with aclosing(responses):
            async for response in responses:
                if response.WhichOneof("event") == "delta":
                    if not has_text and (opening := self._opening(number)):
                        yield self._chunk(opening)
                    has_text = True
                    yield head + _TEXT.encode(response.delta.text) + tail
                    continue
                async with aclosing(self._ending(number, response.final, has_text=has_text)) as ending:
                    async for each in ending:
                        yield each

    async def _ending(self, number: int, final: Any, *, has_text: bool) -> AsyncGenerator[bytes]:
        first = first_index(number, final)
        outputs = list(enumerate(self._outputs(final), first))
        size = self._size([final])
        for index, output in outputs:
            if not has_text:
                if opening := self._opening(index):
                    yield self._chunk(opening)
                for each in self._said(index, output):
                    yield self._chunk([each])

        def closing(index: int, output: Any) -> bytes:
            about = _about(final) if index == outputs[-1][0] else {}
            return self._chunk([self._closing(index, output)], **about)

        for index, output in outputs:
            yield await aside(size, partial(closing, index, output))
        self._usages.append(final.completion.usage)

    def _size(self, responses: Sequence[Any]) -> int:
        """About how many bytes an answer has, as far as these take time: scores are made of many small objects."""
        size: int = sum(response.ByteSize() for response in responses)
        return COST_OF_SCORES * size if self._scored else size

    def _outputs(self, response: Any) -> list[Any]:
        """The answers of a response, which have the fields of an Output."""
        if self._scored:
            spelling = self._http.spelling_of(response.completion.model)
            # The same tokens come again and again.
            self._spelling = cache(spelling) if spelling else None
        return [response.completion, *response.completion.others]

    def _chunk(self, choices: list[dict[str, Any]], **more: Any) -> bytes:
        usage = {"usage": None} if self._include_usage else {}
        # The choices stand last, so that the text of a delta does.
        return event(usage | more | self._object(self.chunk_object, choices))

    def _object(self, name: str, choices: Sequence[Any]) -> dict[str, Any]:
        return {"id": self._id, "object": name, "created": self._created, "model": self._model, "choices": choices}


class ChatAnswers(TextAnswers):
    """`chat.completion` and its chunks."""

    id_prefix, object, chunk_object = "chatcmpl", "chat.completion", "chat.completion.chunk"

    def _whole_choice(self, index: int, output: Any) -> dict[str, Any]:
        message = {"role": "assistant", "content": output.text, "refusal": None}
        return {"index": index, "message": message} | self._end(output)

    def _opening(self, index: int) -> list[dict[str, Any]]:
        return [{"index": index, "finish_reason": None, "delta": {"role": "assistant", "content": ""}}]

    def _delta(self, index: int, text: str) -> dict[str, Any]:
        return {"index": index, "finish_reason": None, "delta": {"content": text}}

    def _closing(self, index: int, output: Any) -> dict[str, Any]:
        return {"index": index, "delta": {}} | self._end(output)

    def _end(self, output: Any) -> dict[str, Any]:
        log_probs = chat_log_probs(output, self._spelling) if self._scored else None
        return {"finish_reason": FINISH_REASONS[output.finish_reason], "logprobs": log_probs}


class CompletionAnswers(TextAnswers):
    """`text_completion`, of which chunks have the same shape."""

    id_prefix, object, chunk_object = "cmpl", "text_completion", "text_completion"

    def _whole_choice(self, index: int, output: Any) -> dict[str, Any]:
        return self._end(index, output) | {"text": output.text}

    def _opening(self, index: int) -> list[dict[str, Any]]:  # noqa: ARG002 - a chat's names its role
        return []

    def _delta(self, index: int, text: str) -> dict[str, Any]:
        return {"index": index, "finish_reason": None, "logprobs": None, "text": text}

    def _closing(self, index: int, output: Any) -> dict[str, Any]:
        return self._end(index, output) | {"text": ""}

    def _end(self, index: int, output: Any) -> dict[str, Any]:
        log_probs = self._log_probs(index, output) if self._scored else None
        return {"index": index, "finish_reason": FINISH_REASONS[output.finish_reason], "logprobs": log_probs}

    def _log_probs(self, index: int, output: Any) -> dict[str, Any]:  # noqa: ARG002 - it tells prompts apart
        return completion_log_probs(output, self._spelling)


def first_index(number: int, response: Any) -> int:
    """Return the index of the first answer to a prompt. A search may find fewer answers than were asked for."""
    index: int = number * response.completion.decoding.num_outputs
    return index


def _about(response: Any) -> dict[str, Any]:
    """What there is to say of an answer beside its choices: the version that made it, and what it attended to."""
    about: dict[str, Any] = {"system_fingerprint": name_of(response.completion.model)}
    if response.HasField("alignment"):
        about["alignment"] = MessageToDict(response.alignment, preserving_proto_field_name=True)
    return about
