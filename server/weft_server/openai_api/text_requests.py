"""What chats and completions share: which call answers a request, and how its answer goes back."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal

import msgspec

from weft_proto.tasks import TASKS
from weft_proto.v1 import common_pb2
from weft_proto.v1.methods import streaming
from weft_server.errors import InvalidRequest
from weft_server.openai_api.batch import placed_stream
from weft_server.openai_api.decoding import DECODING_FIELDS, decoding_of, in_range
from weft_server.openai_api.events import streamed
from weft_server.openai_api.fields import REQUIRED, Field, NotTaken
from weft_server.openai_api.priority import PRIORITY_FIELD

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Callable, Iterable, Mapping

    from google.protobuf.message import Message

    from weft_server.api.http_messages import HttpStream
    from weft_server.openai_api.api_request import ApiRequest
    from weft_server.openai_api.text_answers import TextAnswers

# By task: the call that answers with text.
METHODS_OF_TASKS = {
    common_pb2.TASK_GENERATE: "Generate",
    common_pb2.TASK_TRANSLATE: "Translate",
    common_pb2.TASK_CAPTION: "Caption",
    common_pb2.TASK_ANSWER: "Answer",
}


class StreamOptions(msgspec.Struct, forbid_unknown_fields=True):
    """Of a stream. Nothing is obfuscated."""

    include_usage: bool | None = None
    include_obfuscation: Literal[False] | None = None


class ExplainOptions(msgspec.Struct, forbid_unknown_fields=True):
    """What an alignment is read from."""

    layer: int | None = None
    head: int | None = None


# Fields of the requests of weft.v1 that have the same name here. Not every task has them.
_SAME = (
    Field("source_language", str | None, "Of a translation: the language of the text, as a BCP-47 tag."),
    Field("target_language", str | None, "Of a translation: the language of the answer."),
    Field("split_sentences", bool | None, "Of a translation: each sentence by itself, for a text that is too long."),
    Field("cache_salt", str | None, "The prefix cache is shared by requests that have the same one."),
)
MODEL_FIELD = Field("model", str, "`name`, `name@version`, `name@label`, `name:adapter` or all.", REQUIRED)
TEXT_FIELDS = (
    MODEL_FIELD,
    Field("stream", bool | None, "Whether the answer comes as server-sent events."),
    Field("stream_options", StreamOptions | None, "`include_usage`: the last chunk has the usage."),
    *DECODING_FIELDS,
    Field("explain", bool | ExplainOptions | None, "`true`, or `layer` and `head`: the answer has an `alignment`."),
    *_SAME,
    PRIORITY_FIELD,
)
TEXT_REFUSED = (
    NotTaken("service_tier", "there is one tier", ("auto", "default")),
    NotTaken("store", "nothing is stored", (False,)),
)
IGNORED = ("user", "metadata", "safety_identifier", "prompt_cache_key", "prompt_cache_retention")


def method_of(
    http: ApiRequest, selector: common_pb2.ModelSelector, path: str, *tasks: common_pb2.Task.ValueType
) -> str:
    """Return the call that answers for a model. Of one that is not there it is Generate, which says so.

    Raises InvalidRequest for a model of another task than `tasks`.
    """
    task = http.task_of(selector) or common_pb2.TASK_GENERATE
    if task not in tasks:
        wants = ", ".join(TASKS[each].name for each in tasks)
        why = f"{selector.name!r} is for {TASKS[task].name}, and {path} takes models for {wants}"
        raise InvalidRequest("model", why, "WRONG_INPUT_KIND")
    return METHODS_OF_TASKS[task]


def fill(request: Any, http: ApiRequest, asked: Any, selector: common_pb2.ModelSelector, num_top: int | None) -> None:
    """Set what the requests of all methods have. `num_top` asks for scores, and for so many others of each token."""
    request.model.CopyFrom(selector)
    request.request_id = http.request_id
    request.decoding.CopyFrom(decoding_of(asked))
    if num_top is not None:
        request.return_scores = True
        with in_range("num_top_tokens"):
            request.num_top_tokens = num_top
    if asked.explain:
        request.explain.SetInParent()
    if isinstance(asked.explain, ExplainOptions):
        with in_range("explain"):
            for name in ("layer", "head"):
                if (value := getattr(asked.explain, name)) is not None:
                    setattr(request.explain, name, value)
    for name in (each.name for each in _SAME):
        if (value := getattr(asked, name)) is not None:
            if name not in request.DESCRIPTOR.fields_by_name:
                raise InvalidRequest(name, "is not taken by a model of this task", "NOT_SUPPORTED")
            setattr(request, name, value)


def check_stream(asked: Any) -> None:
    """Raise InvalidRequest for options of a stream where there is none."""
    if asked.stream_options and asked.stream_options.include_usage and not asked.stream:
        raise InvalidRequest("stream_options", "needs stream: true")


def streams_of(http: ApiRequest, method: str) -> Callable[[Any], AsyncGenerator[Any]]:
    """Return what asks for the stream of a request of a unary method."""
    twin = streaming(method)
    return lambda request: http.caller.stream(twin, twin.request(request=request))


async def stream(
    ask: Callable[[Any], AsyncGenerator[Any]],
    requests: Iterable[Message],
    answers: TextAnswers,
    params: Mapping[str, str],
    lists: Iterable[str] = (),
) -> HttpStream:
    """Return the streams that `ask` gives for some requests as one. Each request has an entry of `lists`."""
    calls = [ask(each) for each in requests]
    if len(calls) > 1:
        calls = [placed_stream(number, each, params, lists) for number, each in enumerate(calls)]
    return await streamed(answers.events(calls), params)
