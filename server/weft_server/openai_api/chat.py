"""POST /v1/chat/completions: messages to the next one. Pictures come as data URIs, where the model sees."""

from __future__ import annotations

import binascii
import re
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Annotated, Any, Literal, NamedTuple

import msgspec

from weft_proto.v1 import answer_pb2, caption_pb2, common_pb2, generation_pb2, translation_pb2
from weft_proto.v1.methods import METHODS
from weft_server.admission.message_limits import MAX_TEXT_BYTES
from weft_server.api.aside import aside
from weft_server.api.http_messages import HttpResponse
from weft_server.api.refusal import Refused
from weft_server.errors import InvalidRequest
from weft_server.openai_api.auto_tools import AutoToolAnswers
from weft_server.openai_api.channel_answers import ChannelAnswers
from weft_server.openai_api.fields import REQUIRED, Field, NotTaken, RequestFields
from weft_server.openai_api.model_names import selector_of
from weft_server.openai_api.params import param_of
from weft_server.openai_api.priority import claim
from weft_server.openai_api.text_answers import ChatAnswers
from weft_server.openai_api.text_requests import (
    IGNORED,
    METHODS_OF_TASKS,
    TEXT_FIELDS,
    TEXT_REFUSED,
    check_stream,
    fill,
    method_of,
    stream,
    streams_of,
)
from weft_server.openai_api.tools import PARAMS as TOOL_PARAMS
from weft_server.openai_api.tools import TOLD_PARAMS, TOOL_FIELDS, Function, ToolCallAnswers, call_of, offered_of, tell
from weft_server.preprocessing.channels import HARMONY
from weft_server.preprocessing.chat_template import MAX_MESSAGES
from weft_server.preprocessing.pictured_prompt import MAX_PICTURES
from weft_server.preprocessing.written_calls import CallReader, reader_of

if TYPE_CHECKING:
    from collections.abc import Callable

    from weft_server.api.http_messages import Response
    from weft_server.openai_api.api_request import ApiRequest

PATH = "/v1/chat/completions"
# Templates know no other name for it.
_ROLES = {"developer": "system"}
# What joins the texts of a message that is in parts.
_BETWEEN_PARTS = "\n"
# Characters of base64 that are read at once, in a millisecond or two. A multiple of four.
_PIECE = 256 * 1024
# Parts of a message that others' servers take, and what may be sent in their place.
_OTHER_PARTS = {
    "video_url": "no model reads videos: send pictures of it, each as a part image_url",
    "video": "no model reads videos: send pictures of it, each as a part image_url",
    "input_audio": "no model reads recordings in a chat: /v1/audio/transcriptions writes down what is said",
    "file": "a message has texts and pictures",
}
_TYPE_OF_PART = re.compile(r"messages\[\d+\]\.content\[\d+\]\.type")


_Nothing = Annotated[list[Any], msgspec.Meta(max_length=0)] | None


class GivenFunction(msgspec.Struct, forbid_unknown_fields=True):
    """What was called, and with what: a JSON object as text."""

    name: str
    arguments: str


class GivenCall(msgspec.Struct, forbid_unknown_fields=True):
    """A call in an earlier answer."""

    id: str
    type: Literal["function"]
    function: GivenFunction


class _Part(msgspec.Struct, tag_field="type", forbid_unknown_fields=True):
    pass


class TextPart(_Part, tag="text"):
    """A piece of a message's text."""

    text: str


class ImageUrl(msgspec.Struct, forbid_unknown_fields=True):
    """A picture as a data URI. How closely to look is the model's own."""

    url: str
    detail: Literal["auto", "low", "high", "original"] | None = None


class ImagePart(_Part, tag="image_url"):
    """A picture in a message."""

    image_url: ImageUrl


class _Picture(NamedTuple):
    """Where a picture stands among a message's parts, and its URI."""

    number: int
    url: str


class ChatMessage(msgspec.Struct, forbid_unknown_fields=True):
    """A message. An answer of this server is one, as it stands and as the SDK gives it back."""

    role: Literal["system", "developer", "user", "assistant", "tool"]
    content: str | list[TextPart | ImagePart] | None = None
    refusal: None = None
    tool_calls: list[GivenCall] | None = None
    tool_call_id: str | None = None
    function_call: None = None
    audio: None = None
    annotations: _Nothing = None


FIELDS = RequestFields(
    "ChatRequest",
    (
        Field("messages", list[ChatMessage], "The chat so far. See below.", REQUIRED),
        *TEXT_FIELDS,
        Field("max_completion_tokens", int | None, "The same as `max_tokens`."),
        Field("logprobs", bool | None, "Whether to tell the log-probability of each token."),
        Field("top_logprobs", int | None, "So many of the most probable tokens of each step, 0 to 20."),
        *TOOL_FIELDS,
    ),
    (
        *TEXT_REFUSED,
        NotTaken("functions", "give `tools`", ([],)),
        NotTaken("function_call", "give `tool_choice`", ("none", "auto")),
        NotTaken("audio", "models answer with text", ()),
        NotTaken("modalities", "models answer with text", (["text"],)),
        NotTaken("prediction", "there are no predicted outputs", ()),
        NotTaken("reasoning_effort", "how long a model thinks is not chosen here", ("none",)),
        NotTaken("verbosity", "ask for it in the messages", ("medium",)),
        NotTaken("web_search_options", "nothing is searched", ()),
        NotTaken("moderation", "nothing is moderated", ()),
    ),
    (*IGNORED, "prompt_cache_options", "parallel_tool_calls"),
)
TASKS = tuple(METHODS_OF_TASKS)
PARAMS = {
    "image": "messages",
    "image.data": "messages",
    "text": "messages",
    "question": "messages",
    "source": "messages",
}
# By which of its names a caller bounds an answer. The other one is out of use.
_BOUND = {"decoding.max_new_tokens": "max_completion_tokens"}


async def chat_completions(http: ApiRequest) -> Response:
    """Answer a chat by the call of its model's task."""
    size = len(http.body)
    asked = await aside(http.cost, partial(_read, http.body))
    check_stream(asked)
    claim(http, asked)
    offered, call = offered_of(asked), call_of(asked)
    if asked.top_logprobs and not asked.logprobs:
        raise InvalidRequest("top_logprobs", "needs logprobs: true")
    selector = selector_of(asked.model)
    method = method_of(http, selector, PATH, *TASKS)
    if size > MAX_TEXT_BYTES and not (METHODS[method].takes_file and any(map(_holds_picture, asked.messages))):
        why = f"are more than {MAX_TEXT_BYTES:,} bytes, and hold no picture that the model takes"
        raise InvalidRequest("messages", why, "MESSAGE_TOO_LARGE")
    request = await aside(size, partial(_REQUESTS[method], asked.messages))
    fill(request, http, asked, selector, (asked.top_logprobs or 0) if asked.logprobs else None)
    answers = ChatAnswers(http, asked, scored=bool(asked.logprobs))
    params = PARAMS if asked.max_tokens is not None else PARAMS | _BOUND
    call_format = http.call_format_of(selector)
    if call_format == HARMONY and not offered:
        answers = ChannelAnswers(http, asked, scored=bool(asked.logprobs))
    if call_format and offered:
        tell(request.messages, offered)
        params = params | TOLD_PARAMS
    if call:
        call.constrain(request.decoding)
        answers, params = ToolCallAnswers(http, asked, call, scored=bool(asked.logprobs)), params | TOOL_PARAMS
    elif offered and call_format is not None:
        answers = AutoToolAnswers(http, asked, _reader_of(call_format, offered), scored=bool(asked.logprobs))
    try:
        if asked.stream:
            return await stream(streams_of(http, method), [request], answers, params)
        return HttpResponse(200, await answers.whole([await http.caller.unary(METHODS[method], request)]))
    except Refused as refused:
        # The advice of weft.v1 is of its own fields.
        if refused.refusal.field.endswith("messages") and refused.refusal.reason == "WRONG_INPUT_KIND":
            why = f"are not taken by {asked.model!r}, which has no chat template: send a prompt to /v1/completions"
            raise InvalidRequest("messages", why, "WRONG_INPUT_KIND") from refused
        message, param = param_of(refused.refusal, params)
        raise Refused(replace(refused.refusal, message=message, field=param)) from None


def _holds_picture(message: ChatMessage) -> bool:
    return isinstance(message.content, list) and any(isinstance(part, ImagePart) for part in message.content)


def _reader_of(call_format: str, offered: list[Function]) -> Callable[[], CallReader]:
    """Return what makes a reader of an answer's calls. Raises InvalidRequest where it is not known how they look."""
    names = frozenset(each.name for each in offered)

    def reader() -> CallReader:
        made = reader_of(call_format, names)
        assert made is not None, f"there was a reader of {call_format}. This is a bug."
        return made

    if reader_of(call_format, names) is None:
        why = "must name the function, or be none: how this model writes a call of its own is not known here"
        raise InvalidRequest("tool_choice", why, "NOT_SUPPORTED")
    return reader


def chat_of(messages: list[ChatMessage]) -> generation_pb2.Messages:
    """Return a chat as weft.v1 has it, for a model with a template: a content in parts has the same parts there."""
    if len(messages) > MAX_MESSAGES:
        raise InvalidRequest("messages", f"must be at most {MAX_MESSAGES:,} messages, not {len(messages):,}")
    parts = (each.content for each in messages if isinstance(each.content, list))
    num_pictures = sum(isinstance(part, ImagePart) for content in parts for part in content)
    if num_pictures > MAX_PICTURES:
        raise InvalidRequest("messages", f"must hold at most {MAX_PICTURES} pictures, not {num_pictures:,}")
    chat = generation_pb2.Messages()
    for index, message in enumerate(messages):
        _check_tools(message, f"messages[{index}]")
        calls = [
            common_pb2.FunctionCall(id=each.id, name=each.function.name, arguments=each.function.arguments)
            for each in message.tool_calls or ()
        ]
        role, call_id = _ROLES.get(message.role, message.role), message.tool_call_id or ""
        turn = chat.turns.add(role=role, calls=calls, call_id=call_id)
        if isinstance(message.content, list):
            for number, part in enumerate(message.content):
                _add_part(turn, part, f"messages[{index}].content[{number}]")
        else:
            turn.content = message.content or ""
    return chat


def _read(body: bytes) -> Any:
    """Return what a body asks for. Raises InvalidRequest, which names a part that others take."""
    try:
        return FIELDS.read(body)
    except InvalidRequest as error:
        kind = str(error).rpartition(" Invalid value ")[2].strip("'")
        if kind not in _OTHER_PARTS or not _TYPE_OF_PART.fullmatch(error.field):
            raise
        raise InvalidRequest(error.field, f"is {kind}, and {_OTHER_PARTS[kind]}", "NOT_SUPPORTED") from error


def _add_part(turn: generation_pb2.Message, part: TextPart | ImagePart, place: str) -> None:
    if isinstance(part, TextPart):
        turn.parts.add(text=part.text)
    else:
        turn.parts.add(image=_image(part.image_url.url, place))


def _generate(messages: list[ChatMessage]) -> Any:
    return generation_pb2.GenerateRequest(messages=chat_of(messages))


def _caption(messages: list[ChatMessage]) -> Any:
    text, pictures = _only(messages)
    if text.strip() or len(pictures) != 1:
        why = "must be one picture and no text: the model describes a picture"
        raise InvalidRequest("messages[0].content", why, "WRONG_INPUT_KIND")
    return caption_pb2.CaptionRequest(image=_image_of(pictures[0]))


def _answer(messages: list[ChatMessage]) -> Any:
    text, pictures = _only(messages)
    if len(pictures) != 1:
        why = "must be one picture and a question: the model answers questions about a picture"
        raise InvalidRequest("messages[0].content", why, "WRONG_INPUT_KIND")
    return answer_pb2.AnswerRequest(image=_image_of(pictures[0]), text=text)


def _translate(messages: list[ChatMessage]) -> Any:
    text, pictures = _only(messages)
    if pictures:
        raise InvalidRequest("messages[0].content", "is a picture, and the model takes none", "WRONG_INPUT_KIND")
    return translation_pb2.TranslateRequest(text=text)


_REQUESTS: dict[str, Callable[[list[ChatMessage]], Any]] = {
    "Generate": _generate,
    "Caption": _caption,
    "Answer": _answer,
    "Translate": _translate,
}


def _only(messages: list[ChatMessage]) -> tuple[str, list[_Picture]]:
    """The text and the pictures of the one message that a model takes which knows no chats."""
    if len(messages) != 1 or messages[0].role != "user":
        raise InvalidRequest("messages", "must be one message of the role user: the model knows no chats")
    _check_tools(messages[0], "messages[0]")
    return _parts(messages[0])


def _check_tools(message: ChatMessage, place: str) -> None:
    """Raise InvalidRequest for a message that has what its role has not, or lacks what it has."""
    if message.tool_calls and message.role != "assistant":
        raise InvalidRequest(f"{place}.tool_calls", "are for the role assistant")
    if message.content is None and not message.tool_calls:
        raise InvalidRequest(f"{place}.content", "is required", "EMPTY_INPUT")
    if (message.role == "tool") != bool(message.tool_call_id):
        raise InvalidRequest(f"{place}.tool_call_id", "is for the role tool, and required there")


def _parts(message: ChatMessage) -> tuple[str, list[_Picture]]:
    if message.content is None:
        return "", []
    if isinstance(message.content, str):
        return message.content, []
    texts, pictures = [], []
    for number, part in enumerate(message.content):
        if isinstance(part, TextPart):
            texts.append(part.text)
        else:
            pictures.append(_Picture(number, part.image_url.url))
    return _BETWEEN_PARTS.join(texts), pictures


def _image_of(picture: _Picture) -> common_pb2.Image:
    """Return the picture of the only message."""
    return _image(picture.url, f"messages[0].content[{picture.number}]")


def _image(url: str, place: str) -> common_pb2.Image:
    """Return a picture of a data URI, which stands in the part of a message. Raises InvalidRequest."""
    param = f"{place}.image_url.url"
    head, comma, data = url.partition(",")
    if not comma or not head.startswith("data:") or not head.endswith(";base64"):
        raise InvalidRequest(param, "must be data:image/png;base64,...: the server fetches nothing", "BAD_IMAGE")
    try:
        return common_pb2.Image(data=base64_bytes(data))
    except (binascii.Error, ValueError) as error:
        raise InvalidRequest(param, "is not base64", "BAD_IMAGE") from error


def base64_bytes(data: str) -> bytes:
    """Return the bytes of base64. They are read in pieces: the interpreter does nothing else during one of them.

    Raises ValueError.
    """
    pieces = [
        binascii.a2b_base64(data[start : start + _PIECE], strict_mode=True) for start in range(0, len(data), _PIECE)
    ]
    if any(len(each) < _PIECE * 3 // 4 for each in pieces[:-1]):
        raise ValueError("it ends in the middle")
    return b"".join(pieces)
