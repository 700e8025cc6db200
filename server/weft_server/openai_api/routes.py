"""The table of endpoints, and the routes of HTTP that are made of it."""

from __future__ import annotations

from dataclasses import replace
from functools import lru_cache, partial
from typing import TYPE_CHECKING
from urllib.parse import unquote

from weft_server.admission.early_admission import PRIORITY_KEY
from weft_server.admission.message_limits import MAX_TEXT_BYTES
from weft_server.api.codecs import MAX_JSON_PARTS, num_json_parts
from weft_server.api.connect_protocol import refuse_unknown
from weft_server.api.http_messages import HttpResponse, Route
from weft_server.calls.concurrent_calls import most_together
from weft_server.errors import CannotDecompress, InvalidRequest
from weft_server.openai_api import audio, chat, completions, embeddings, models_list, rerank, tokenize
from weft_server.openai_api.api_request import ApiRequest
from weft_server.openai_api.endpoint import Endpoint, describe_endpoint
from weft_server.openai_api.error_bodies import error_response
from weft_server.openai_api.forms import FORM
from weft_server.openai_api.known_models import KnownModels
from weft_server.transport.handlers import FIELD_BYTES

if TYPE_CHECKING:
    from collections.abc import Iterator

    from weft_server.api.http_messages import HttpRequest, Response
    from weft_server.api.refusal import Refusal
    from weft_server.models.registry import ModelRegistry
    from weft_server.openai_api.api_request import ApiCaller

# Where the paths of gRPC's methods begin. All others are of this API.
_OTHERS = ("/weft.", "/grpc.")


ENDPOINTS = (
    Endpoint("GET", models_list.PATH, "ListModels", models_list.models),
    Endpoint("GET", f"{models_list.PATH}/*", "GetModel", models_list.model),
    Endpoint("POST", chat.PATH, None, chat.chat_completions, chat.FIELDS, chat.PARAMS, True, tasks=chat.TASKS),
    Endpoint(
        "POST",
        completions.PATH,
        None,
        completions.completions,
        completions.FIELDS,
        completions.PARAMS,
        tasks=completions.TASKS,
    ),
    Endpoint("POST", embeddings.PATH, "Embed", embeddings.embeddings, embeddings.FIELDS, embeddings.PARAMS),
    Endpoint(
        "POST", audio.HEARD_PATH, "Transcribe", audio.transcriptions, audio.HEARD_FIELDS, audio.PARAMS, True, FORM
    ),
    Endpoint(
        "POST", audio.ENGLISH_PATH, "Transcribe", audio.translations, audio.ENGLISH_FIELDS, audio.PARAMS, True, FORM
    ),
    Endpoint(
        "POST",
        rerank.RERANK_PATH,
        "Classify",
        rerank.rerank,
        rerank.RERANK_FIELDS,
        rerank.RERANK_PARAMS,
        aliases=rerank.RERANK_ALIASES,
    ),
    Endpoint(
        "POST",
        rerank.SCORE_PATH,
        "Classify",
        rerank.score,
        rerank.SCORE_FIELDS,
        rerank.SCORE_PARAMS,
        aliases=rerank.SCORE_ALIASES,
    ),
    Endpoint("POST", tokenize.CUT_PATH, "Tokenize", tokenize.tokenize, tokenize.CUT_FIELDS, tokenize.CUT_PARAMS),
    Endpoint("POST", tokenize.JOIN_PATH, "Detokenize", tokenize.detokenize, tokenize.JOIN_FIELDS, tokenize.JOIN_PARAMS),
)


def openai_routes(models: ModelRegistry, max_request_bytes: int, max_queued_requests: int = 256) -> Iterator[Route]:
    """Yield the route of each endpoint. A body has at most `max_request_bytes`, and a model's queue has places."""
    known = KnownModels(models)
    for endpoint in ENDPOINTS:
        served = _Served(endpoint, known, most_together(max_queued_requests))
        most = max_request_bytes if endpoint.takes_file else min(max_request_bytes, MAX_TEXT_BYTES)
        most = most if endpoint.fields else 0
        route = Route(
            endpoint.verb,
            endpoint.path,
            endpoint.rpc,
            most,
            served.weigh,
            served.answer,
            served.refuse,
            partial(describe_endpoint, endpoint),
            takes_priority=endpoint.takes_priority,
        )
        yield route
        for alias in endpoint.aliases:
            yield replace(route, path=alias, describe=None)


def refuse_path(request: HttpRequest, refusal: Refusal) -> Response:
    """Return the response of a path that has no route, or of who may not know whether it has, as its beginning says."""
    if request.path.startswith(_OTHERS):
        return refuse_unknown(request, refusal)
    return error_response(refusal, {})


class _Served:
    """An endpoint as a route."""

    def __init__(self, endpoint: Endpoint, known: KnownModels, most_together: int) -> None:
        self._endpoint, self._known, self._most_together = endpoint, known, most_together
        # A flood gets the same few refusals again and again.
        self._refused = lru_cache(64)(lambda refusal: error_response(refusal, endpoint.params))

    def weigh(self, request: HttpRequest, data: bytes) -> int:
        """Return about how many bytes a body takes, with what is made of it.

        Raises InvalidRequest and CannotDecompress.
        """
        if request.header("content-encoding").lower() not in {"", "identity"}:
            raise CannotDecompress
        if self._endpoint.media_type == FORM:
            return 2 * len(data)
        # Whatever its header says, it is read as JSON.
        num_parts = num_json_parts(data)
        if num_parts > MAX_JSON_PARTS:
            why = f"the JSON has {num_parts:,} braces, brackets and commas, and may have {MAX_JSON_PARTS:,}"
            raise InvalidRequest("", why, "MESSAGE_TOO_LARGE")
        return 2 * len(data) + FIELD_BYTES * num_parts

    async def answer(self, request: HttpRequest, caller: ApiCaller) -> Response:
        """Answer a request. Raises Refused and RequestError."""
        asked = ApiRequest(
            caller,
            partial(self._known.task_of, caller.allowed_models),
            self._known.spelling_of,
            partial(self._known.call_format_of, caller.allowed_models),
            self._known.has_seams,
            caller.name(),
            request.body,
            request.header("content-type"),
            unquote(request.path.rpartition("/")[2]),
            self._most_together,
            request.header(PRIORITY_KEY),
        )
        request.body = b""
        return await self._endpoint.handler(asked)

    def refuse(self, request: HttpRequest, refusal: Refusal) -> Response:  # noqa: ARG002 - as a route has it
        """Return the response of a refusal, which others may add headers to."""
        made = self._refused(refusal)
        return HttpResponse(made.status, made.body, made.content_type, made.headers)
