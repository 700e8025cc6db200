"""A row of the table of endpoints, and what /openapi.json says of it."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any, NamedTuple

from weft_proto.v1.methods import METHODS
from weft_server.api.http_messages import JSON, LAST_PART, Operation
from weft_server.api.message_schemas import SCHEMAS_AT, reference
from weft_server.openai_api import audio, chat, completions, embeddings, rerank, tokenize
from weft_server.openai_api.answer_schemas import SCHEMAS, answer_of
from weft_server.openai_api.events import EVENT_STREAM
from weft_server.openai_api.forms import FORM

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping

    from weft_proto.v1 import common_pb2
    from weft_proto.v1.methods import Method
    from weft_server.api.http_messages import Response
    from weft_server.openai_api.api_request import ApiRequest
    from weft_server.openai_api.fields import RequestFields


GROUP = "OpenAI's API"
_GROUP_SAYS = (
    "Requests and answers have the shapes of OpenAI's API, of Jina's for rerank, of vLLM's for score and tokens."
)
_ERROR = "Error"
_ERRORS = {
    _ERROR: {
        "type": "object",
        "description": "Why there is no answer.",
        "required": ["error"],
        "properties": {
            "error": {
                "type": "object",
                "required": ["message", "type", "param", "code"],
                "properties": {
                    "message": {"type": "string", "description": "A sentence for people."},
                    "type": {"type": "string", "description": "Such as invalid_request_error."},
                    "param": {"type": ["string", "null"], "description": "The field of the request that is wrong."},
                    "code": {"type": "string", "description": "For programs, such as queue_full."},
                },
            }
        },
    }
}
# Requests that `make serve` answers, where a demo model is for the endpoint.
_CHAT = [{"role": "user", "content": "we are eating bread"}]


class Endpoint(NamedTuple):
    """One row.

    Attributes:
        verb: such as POST.
        path: its last part may be `*`.
        method: the call by which a request is judged before its body has come. None: it may be one of several, see
            `tasks`.
        handler: answers. Raises RequestError, or Refused of a call that it made.
        fields: those of the body; None: it has none.
        params: what it calls fields of weft.v1, where that is its own.
        takes_file: whether a body may be larger than texts are.
        media_type: of the body.
        tasks: of the models that may answer it, where `method` does not say so.
        aliases: other paths that are the same. /openapi.json does not list them.
    """

    verb: str
    path: str
    method: str | None
    handler: Callable[[ApiRequest], Awaitable[Response]]
    fields: RequestFields | None = None
    params: Mapping[str, str] = {}
    takes_file: bool = False
    media_type: str = JSON
    tasks: tuple[common_pb2.Task.ValueType, ...] = ()
    aliases: tuple[str, ...] = ()

    @property
    def takes_priority(self) -> bool:
        """Whether a body may ask for a class among those who wait."""
        return self.fields is not None and any(each.name == "priority" for each in self.fields.taken)

    @property
    def rpc(self) -> Method:
        """The method of its route. What may be one of several has no path of gRPC."""
        if self.method:
            return METHODS[self.method]
        return replace(METHODS["Generate"], name="OpenAI", tasks=self.tasks)


EXAMPLES: dict[str, dict[str, Any]] = {
    chat.PATH: {"model": "en-es", "messages": _CHAT},
    completions.PATH: {"model": "pydocs", "prompt": "Return a list of", "max_tokens": 20},
    embeddings.PATH: {"model": "NAME", "input": "we are eating bread"},
    audio.HEARD_PATH: {"model": "commands"},
    audio.ENGLISH_PATH: {"model": "NAME"},
    rerank.RERANK_PATH: {"model": "NAME", "query": "what is bread?", "documents": ["Bread is food.", "It rains."]},
    rerank.SCORE_PATH: {"model": "NAME", "text_1": "what is bread?", "text_2": ["Bread is food.", "It rains."]},
    tokenize.CUT_PATH: {"model": "en-es", "prompt": "we are eating bread"},
    tokenize.JOIN_PATH: {"model": "en-es", "tokens": [377, 219, 665]},
}


def describe_endpoint(endpoint: Endpoint) -> Operation:
    """Return what an endpoint does, by its row."""
    says = (endpoint.handler.__doc__ or "").strip()
    about: dict[str, Any] = {
        "operationId": endpoint.handler.__name__,
        "summary": says.rstrip("."),
        "description": says,
        "responses": {
            "200": {"description": "The answer.", "content": _answers(endpoint)},
            "default": {"description": "Why there is none.", "content": {JSON: {"schema": reference(_ERROR)}}},
        },
    }
    schemas: dict[str, Any] = _ERRORS | SCHEMAS
    if endpoint.fields:
        name, more = endpoint.fields.schemas(f"{SCHEMAS_AT}{{name}}")
        schemas |= more
        if endpoint.media_type == FORM:
            schemas[name]["properties"]["file"] = {"type": "string", "format": "binary", "description": "WAV or FLAC."}
            schemas[name]["required"] = ["file", *schemas[name]["required"]]
        asked = {"schema": reference(name), "example": EXAMPLES[endpoint.path]}
        about["requestBody"] = {"required": True, "content": {endpoint.media_type: asked}}
    elif endpoint.path.endswith("*"):
        about["parameters"] = [
            {"name": LAST_PART, "in": "path", "required": True, "schema": {"type": "string"}, "example": "en-es"}
        ]
    return Operation(GROUP, about, schemas, _GROUP_SAYS)


def _answers(endpoint: Endpoint) -> dict[str, Any]:
    """The media types of an answer."""
    kinds: dict[str, Any] = {JSON: {"schema": answer_of(endpoint.path)}}
    names = {field.name for field in endpoint.fields.taken} if endpoint.fields else set()
    if "stream" in names:
        kinds[EVENT_STREAM] = {"schema": {"type": "string", "description": "Events, if `stream` is true."}}
    if endpoint.media_type == FORM:
        kinds["text/plain"] = {"schema": {"type": "string", "description": "For text, srt and vtt."}}
    return kinds
