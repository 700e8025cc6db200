"""POST /v1/chat/completions: messages to the next one. Pictures come as data URIs, where the model sees."""

from __future__ import annotations

import binascii
from typing import TYPE_CHECKING, Any, Literal

import msgspec

from weft_proto.v1 import answer_pb2, caption_pb2, common_pb2, generation_pb2, translation_pb2
from weft_proto.v1.methods import METHODS
from weft_server.admission.message_limits import MAX_TEXT_BYTES
from weft_server.api.http_messages import HttpResponse
from weft_server.api.refusal import Refused
from weft_server.errors import InvalidRequest
from weft_server.openai_api.fields import REQUIRED, Field, NotTaken, RequestFields
from weft_server.openai_api.model_names import selector_of
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
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from weft_server.api.http_messages import Response
    from weft_server.openai_api.api_request import ApiRequest

PATH = "/v1/chat/completions"
# Templates know no other name for it.
_ROLES = {"developer": "system"}
# What joins the texts of a message that is in parts.
_BETWEEN_PARTS = "\n"


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


class ChatMessage(msgspec.Struct, forbid_unknown_fields=True):
    """A message. An answer of this server is one, as it stands."""

    role: Literal["system", "developer", "user", "assistant"]
    content: str | list[TextPart | ImagePart]
    refusal: None = None
    tool_calls: None = None
    function_call: None = None
    audio: None = None


FIELDS = RequestFields(
    "ChatRequest",
    (
        Field("messages", list[ChatMessage], "The chat so far. See below.", REQUIRED),
        *TEXT_FIELDS,
        Field("max_completion_tokens", int | None, "The same as `max_tokens`."),
        Field("logprobs", bool | None, "Whether to tell the log-probability of each token."),
        Field("top_logprobs", int | None, "So many of the most probable tokens of each step, 0 to 20."),
    ),
    (
        *TEXT_REFUSED,
        NotTaken("tools", "models call no tools here", ([],)),
        NotTaken("tool_choice", "models call no tools here", ("none", "auto")),
        NotTaken("functions", "models call no tools here", ([],)),
        NotTaken("function_call", "models call no tools here", ("none", "auto")),
        NotTaken("audio", "models answer with text", ()),
        NotTaken("modalities", "models answer with text", (["text"],)),
        NotTaken("prediction", "there are no predicted outputs", ()),
        NotTaken("reasoning_effort", "models do not reason here", ("none",)),
        NotTaken("verbosity", "ask for it in the messages", ()),
        NotTaken("web_search_options", "nothing is searched", ()),
        NotTaken("moderation", "nothing is moderated", ()),
    ),
    (*IGNORED, "prompt_cache_options", "parallel_tool_calls"),
)
PARAMS = {"image": "messages", "text": "messages", "question": "messages", "source": "messages"} | {
    # Its other name is out of use.
    "decoding.max_new_tokens": "max_completion_tokens"
}


async def chat_completions(http: ApiRequest) -> Response:
    """Answer a chat by the call of its model's task."""
    asked = FIELDS.read(http.body)
    check_stream(asked)
    if asked.top_logprobs is not None and not asked.logprobs:
        raise InvalidRequest("top_logprobs", "needs logprobs: true")
    selector = selector_of(asked.model)
    method = method_of(http, selector, PATH, *METHODS_OF_TASKS)
    if not METHODS[method].takes_file and len(http.body) > MAX_TEXT_BYTES:
        why = f"are more than {MAX_TEXT_BYTES:,} bytes, and the model takes no pictures"
        raise InvalidRequest("messages", why, "MESSAGE_TOO_LARGE")
    request = _REQUESTS[method](asked.messages)
    fill(request, http, asked, selector, (asked.top_logprobs or 0) if asked.logprobs else None)
    answers = ChatAnswers(http, asked, scored=bool(asked.logprobs))
    try:
        if asked.stream:
            return await stream(http, method, request, answers, PARAMS)
        return HttpResponse(200, await answers.whole([await http.caller.unary(METHODS[method], request)]))
    except Refused as refused:
        # The advice of weft.v1 is of its own fields.
        if refused.refusal.field.endswith("messages") and refused.refusal.reason == "WRONG_INPUT_KIND":
            why = f"are not taken by {asked.model!r}, which has no chat template: send a prompt to /v1/completions"
            raise InvalidRequest("messages", why, "WRONG_INPUT_KIND") from refused
        raise


def chat_of(messages: list[ChatMessage]) -> generation_pb2.Messages:
    """Return a chat as weft.v1 has it, for a model with a template. Raises InvalidRequest for pictures."""
    chat = generation_pb2.Messages()
    for index, message in enumerate(messages):
        text, images = _parts(message, index)
        if images:
            why = "is a picture, and the model takes none"
            raise InvalidRequest(f"messages[{index}].content", why, "WRONG_INPUT_KIND")
        chat.turns.add(role=_ROLES.get(message.role, message.role), content=text)
    return chat


def _generate(messages: list[ChatMessage]) -> Any:
    return generation_pb2.GenerateRequest(messages=chat_of(messages))


def _caption(messages: list[ChatMessage]) -> Any:
    text, images = _only(messages)
    if text.strip() or len(images) != 1:
        why = "must be one picture and no text: the model describes a picture"
        raise InvalidRequest("messages[0].content", why, "WRONG_INPUT_KIND")
    return caption_pb2.CaptionRequest(image=images[0])


def _answer(messages: list[ChatMessage]) -> Any:
    text, images = _only(messages)
    if not text.strip() or len(images) != 1:
        why = "must be one picture and a question: the model answers questions about a picture"
        raise InvalidRequest("messages[0].content", why, "WRONG_INPUT_KIND")
    return answer_pb2.AnswerRequest(image=images[0], text=text)


def _translate(messages: list[ChatMessage]) -> Any:
    text, images = _only(messages)
    if images:
        raise InvalidRequest("messages[0].content", "is a picture, and the model takes none", "WRONG_INPUT_KIND")
    return translation_pb2.TranslateRequest(text=text)


_REQUESTS: dict[str, Callable[[list[ChatMessage]], Any]] = {
    "Generate": _generate,
    "Caption": _caption,
    "Answer": _answer,
    "Translate": _translate,
}


def _only(messages: list[ChatMessage]) -> tuple[str, list[common_pb2.Image]]:
    """The text and the pictures of the one message that a model takes which knows no chats."""
    if len(messages) != 1 or messages[0].role != "user":
        raise InvalidRequest("messages", "must be one message of the role user: the model knows no chats")
    return _parts(messages[0], 0)


def _parts(message: ChatMessage, index: int) -> tuple[str, list[common_pb2.Image]]:
    if isinstance(message.content, str):
        return message.content, []
    texts, images = [], []
    for number, part in enumerate(message.content):
        if isinstance(part, TextPart):
            texts.append(part.text)
        else:
            images.append(_image(part.image_url.url, f"messages[{index}].content[{number}].image_url.url"))
    return _BETWEEN_PARTS.join(texts), images


def _image(url: str, param: str) -> common_pb2.Image:
    head, comma, data = url.partition(",")
    if not comma or not head.startswith("data:") or not head.endswith(";base64"):
        raise InvalidRequest(param, "must be data:image/png;base64,...: the server fetches nothing", "BAD_IMAGE")
    try:
        return common_pb2.Image(data=binascii.a2b_base64(data, strict_mode=True))
    except (binascii.Error, ValueError) as error:
        raise InvalidRequest(param, "is not base64", "BAD_IMAGE") from error
