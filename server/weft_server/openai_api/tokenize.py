"""POST /tokenize and /detokenize: texts to tokens and back, in the shapes of vLLM."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any, Literal

import msgspec

from weft_proto.v1 import tokenization_pb2
from weft_proto.v1.methods import METHODS
from weft_server.api.aside import aside
from weft_server.api.http_messages import HttpResponse
from weft_server.errors import InvalidRequest
from weft_server.openai_api.chat import ChatMessage, chat_of
from weft_server.openai_api.decoding import in_range
from weft_server.openai_api.fields import REQUIRED, Field, RequestFields
from weft_server.openai_api.model_names import selector_of
from weft_server.openai_api.text_requests import MODEL_FIELD

if TYPE_CHECKING:
    from weft_server.openai_api.api_request import ApiRequest

CUT_PATH, JOIN_PATH = "/tokenize", "/detokenize"
_SIDES: dict[str | None, tokenization_pb2.Side.ValueType] = {
    "input": tokenization_pb2.SIDE_INPUT,
    "output": tokenization_pb2.SIDE_OUTPUT,
    None: tokenization_pb2.SIDE_UNSPECIFIED,
}
_SIDE = Literal["input", "output"] | None
CUT_FIELDS = RequestFields(
    "TokenizeRequest",
    (
        MODEL_FIELD,
        Field("prompt", str | None, "The text. Give this or `messages`."),
        Field("messages", list[ChatMessage] | None, "A chat, whose prompt is cut."),
        Field("return_token_strs", bool | None, "Whether the answer has the pieces of the text as `token_strs`."),
        Field("side", _SIDE, "`output`: the text is what the model writes. Default: what it reads."),
    ),
)
JOIN_FIELDS = RequestFields(
    "DetokenizeRequest",
    (
        MODEL_FIELD,
        Field("tokens", list[int], "The ids of the tokens.", REQUIRED),
        Field("side", _SIDE, "`input`: they are of what the model reads. Default: of what it writes."),
    ),
)
CUT_PARAMS = {"text": "prompt", "input": "prompt"}
JOIN_PARAMS = {"token_ids": "tokens"}


async def tokenize(http: ApiRequest) -> HttpResponse:
    """Answer with the tokens of a text."""
    asked = await aside(http.cost, partial(CUT_FIELDS.read, http.body))
    if (asked.prompt is None) == (asked.messages is None):
        raise InvalidRequest("prompt", "or messages is required: one of the two", "EMPTY_INPUT")
    request = tokenization_pb2.TokenizeRequest(
        model=selector_of(asked.model), request_id=http.request_id, side=_SIDES[asked.side]
    )
    if asked.messages is None:
        request.text = asked.prompt
    else:
        request.messages.CopyFrom(await aside(len(http.body), partial(chat_of, asked.messages)))
    answer = await http.caller.unary(METHODS["Tokenize"], request)
    return HttpResponse(200, await aside(answer.ByteSize(), partial(_whole, answer, pieces=asked.return_token_strs)))


def _whole(answer: Any, *, pieces: bool | None) -> bytes:
    whole: dict[str, Any] = {"count": answer.num_tokens, "tokens": list(answer.token_ids)}
    if pieces:
        whole["token_strs"] = list(answer.tokens)
    return msgspec.json.encode(whole)


async def detokenize(http: ApiRequest) -> HttpResponse:
    """Answer with the text of some tokens."""
    asked = await aside(http.cost, partial(JOIN_FIELDS.read, http.body))
    request = tokenization_pb2.DetokenizeRequest(
        model=selector_of(asked.model), request_id=http.request_id, side=_SIDES[asked.side]
    )
    with in_range("tokens"):
        request.token_ids.extend(asked.tokens)
    answer = await http.caller.unary(METHODS["Detokenize"], request)
    return HttpResponse(200, msgspec.json.encode({"prompt": answer.text}))
