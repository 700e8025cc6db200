"""POST /v1/rerank and /v1/score: a model judges pairs of texts. The shapes are Jina's, Cohere's and vLLM's.

A cross-encoder reads both. Of a model with a vector for each token, their vectors are compared.
"""

from __future__ import annotations

import time
from functools import partial
from typing import TYPE_CHECKING, Any

import msgspec

from weft_proto.v1 import classification_pb2, common_pb2, model_pb2, score_pb2
from weft_proto.v1.methods import METHODS
from weft_server.api.aside import aside
from weft_server.api.http_messages import HttpResponse
from weft_server.errors import InvalidRequest
from weft_server.openai_api.batch import all_of, check_shared
from weft_server.openai_api.fields import REQUIRED, Field, NotTaken, RequestFields
from weft_server.openai_api.model_names import name_of, selector_of
from weft_server.openai_api.priority import PRIORITY_FIELD, claim
from weft_server.openai_api.text_requests import IGNORED, MODEL_FIELD
from weft_server.openai_api.usage import input_usage_of

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from weft_server.openai_api.api_request import ApiRequest

RERANK_PATH, SCORE_PATH = "/v1/rerank", "/v1/score"
# Where clients of Cohere's version 2 and of vLLM ask.
RERANK_ALIASES, SCORE_ALIASES = ("/v2/rerank", "/rerank"), ("/score",)
MAX_PAIRS = 256


class Document(msgspec.Struct, forbid_unknown_fields=True):
    """A text as Jina's and Cohere's clients may send it."""

    text: str


RERANK_FIELDS = RequestFields(
    "RerankRequest",
    (
        MODEL_FIELD,
        Field("query", str, "What is looked for.", REQUIRED),
        Field(
            "documents",
            list[str | Document],
            f'The texts to put into order, or `{{"text": ...}}`; at most {MAX_PAIRS}.',
            REQUIRED,
        ),
        Field("top_n", int | None, "How many of the best are returned. Default: all."),
        Field("return_documents", bool | None, "Whether each result has its text. Default: it has."),
        PRIORITY_FIELD,
    ),
    (NotTaken("max_tokens_per_doc", "no document is cut"),),
    IGNORED,
)
SCORE_FIELDS = RequestFields(
    "ScoreRequest",
    (
        MODEL_FIELD,
        Field("text_1", str | list[str], "A text, or as many as `text_2` has.", REQUIRED),
        Field(
            "text_2",
            str | list[str],
            f"A text or several, at most {MAX_PAIRS}.",
            REQUIRED,
        ),
        PRIORITY_FIELD,
    ),
    (),
    IGNORED,
)
RERANK_PARAMS = {"text": "query", "text_pair": "documents", "target_text": "documents"}
SCORE_PARAMS = {"text": "text_1", "text_pair": "text_2", "target_text": "text_2"}


async def rerank(http: ApiRequest) -> HttpResponse:
    """Answer with the documents, the most relevant first."""
    asked = await aside(http.cost, partial(RERANK_FIELDS.read, http.body))
    claim(http, asked)
    if asked.top_n is not None and asked.top_n < 1:
        raise InvalidRequest("top_n", f"must be at least 1, not {asked.top_n}")
    documents = [each if isinstance(each, str) else each.text for each in asked.documents]
    judged = await _judge(http, asked.model, [asked.query], documents, RERANK_PARAMS)
    # Of equal scores the earlier document is first.
    order = sorted(range(len(judged)), key=lambda index: -_score(judged[index]))[: asked.top_n]
    results: list[dict[str, Any]] = [{"index": index, "relevance_score": _score(judged[index])} for index in order]
    if asked.return_documents is not False:
        for each in results:
            each["document"] = {"text": documents[each["index"]]}
    whole = partial(_whole, asked, judged, {"id": f"rerank-{http.request_id}", "results": results})
    return await aside(len(http.body), whole)


async def score(http: ApiRequest) -> HttpResponse:
    """Answer with the score of each pair."""
    asked = await aside(http.cost, partial(SCORE_FIELDS.read, http.body))
    claim(http, asked)
    second = [asked.text_2] if isinstance(asked.text_2, str) else asked.text_2
    first = [asked.text_1] if isinstance(asked.text_1, str) else asked.text_1
    if len(first) not in {1, len(second)}:
        why = f"must be one text, or as many as text_2 has, {len(second)}, not {len(first)}"
        raise InvalidRequest("text_1", why)
    judged = await _judge(http, asked.model, first, second, SCORE_PARAMS)
    data = [{"object": "score", "index": index, "score": _score(each)} for index, each in enumerate(judged)]
    whole = {"id": f"score-{http.request_id}", "object": "list", "created": int(time.time()), "data": data}
    return _whole(asked, judged, whole)


async def _judge(
    http: ApiRequest, model: str, first: Sequence[str], second: Sequence[str], params: Mapping[str, str]
) -> list[Any]:
    """Return what a model says of each text of `second`, with the one of `first`, or each with its own."""
    param = params["text_pair"]
    if not second:
        raise InvalidRequest(param, "must not be empty", "EMPTY_INPUT")
    if len(second) > MAX_PAIRS:
        raise InvalidRequest(param, f"must be at most {MAX_PAIRS} texts, not {len(second)}", "INPUT_TOO_LONG")
    selector = selector_of(model)
    # Both are of one shape: a text, and another one beside it.
    check_shared(
        classification_pb2.ClassifyRequest(model=selector, text=first[0] if len(first) == 1 else ""), len(second), param
    )
    for index, text_pair in enumerate(second):
        if not text_pair:
            raise InvalidRequest(f"{param}[{index}]", "must not be empty", "EMPTY_INPUT")
    card = (await http.caller.unary(METHODS["GetModel"], model_pb2.GetModelRequest(model=selector))).model
    matches = common_pb2.VECTOR_KIND_TOKENS in card.vector_kinds
    if not matches and (not card.takes_pairs or len(card.labels) != 1):
        why = (
            f"{selector.name!r} is no cross-encoder, which takes two texts and has one label, and makes no vector for"
            " each token"
        )
        raise InvalidRequest("model", why, "WRONG_INPUT_KIND")
    kind: Any
    kind, other, method = (
        (score_pb2.ScoreRequest, "target_text", "Score")
        if matches
        else (classification_pb2.ClassifyRequest, "text_pair", "Classify")
    )
    shared = kind(model=selector, request_id=http.request_id)
    if len(first) == 1:
        shared.text = first[0]
    own = [
        kind(**{other: each}, **({"text": first[index]} if len(first) > 1 else {})) for index, each in enumerate(second)
    ]
    lists = params.values() if len(first) > 1 else [param]
    return await all_of(http, partial(http.caller.unary, METHODS[method]), shared, own, params, lists)


def _score(answer: Any) -> float:
    score: float = answer.total if isinstance(answer, score_pb2.ScoreResponse) else answer.labels[0].score
    return score


def _whole(asked: Any, judged: list[Any], more: dict[str, Any]) -> HttpResponse:
    about = {"model": asked.model, "system_fingerprint": name_of(judged[0].model)}
    usage = input_usage_of(each.usage for each in judged)
    return HttpResponse(200, msgspec.json.encode(more | about | {"usage": usage}))
