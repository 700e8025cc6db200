"""POST /v1/embeddings: texts to vectors, as numbers or as the bytes of numbers; also a vector for each token."""

from __future__ import annotations

import base64
from functools import partial
from typing import TYPE_CHECKING, Any, Literal

import msgspec
import numpy as np

from weft_proto.v1 import common_pb2, embedding_pb2
from weft_proto.v1.methods import METHODS
from weft_server.api.aside import aside
from weft_server.api.http_messages import HttpResponse
from weft_server.openai_api.completions import Texts, inputs_of
from weft_server.openai_api.decoding import in_range
from weft_server.openai_api.fields import REQUIRED, Field, RequestFields
from weft_server.openai_api.model_names import name_of, selector_of
from weft_server.openai_api.priority import PRIORITY_FIELD, claim
from weft_server.openai_api.text_requests import IGNORED, MODEL_FIELD
from weft_server.openai_api.usage import input_usage_of
from weft_server.requests.embed import MAX_INPUTS

if TYPE_CHECKING:
    from collections.abc import Callable

    from weft_server.openai_api.api_request import ApiRequest

PATH = "/v1/embeddings"
FIELDS = RequestFields(
    "EmbeddingRequest",
    (
        Field("input", Texts, f"A text, token ids, or a list of up to {MAX_INPUTS} of either.", REQUIRED),
        MODEL_FIELD,
        Field("dimensions", int | None, "Cuts each vector to its first numbers."),
        Field("encoding_format", Literal["float", "base64"] | None, "`float`, or `base64`: little-endian float32."),
        Field("prompt_name", str | None, "The prompt that stands before each text, such as `query`."),
        Field(
            "kinds",
            list[Literal["whole", "tokens", "weights"]] | None,
            "What is answered of each input, of what the model makes: `whole`, `tokens` or `weights`.",
        ),
        PRIORITY_FIELD,
    ),
    (),
    IGNORED,
)
_KINDS = {
    "whole": common_pb2.VECTOR_KIND_WHOLE,
    "tokens": common_pb2.VECTOR_KIND_TOKENS,
    "weights": common_pb2.VECTOR_KIND_WEIGHTS,
}
PARAMS = {"inputs": "input"}


async def embeddings(http: ApiRequest) -> HttpResponse:
    """Answer with a vector for each input."""
    size = len(http.body)
    asked = await aside(http.cost, partial(FIELDS.read, http.body))
    claim(http, asked)
    request = await aside(size, partial(_request, asked))
    request.request_id = http.request_id
    request.model.CopyFrom(selector_of(asked.model))
    if asked.dimensions is not None:
        with in_range("dimensions"):
            request.dimensions = asked.dimensions
    answer = await http.caller.unary(METHODS["Embed"], request)
    # A number has up to 20 characters as JSON.
    num_bytes = 20 * sum(len(each.values) + len(each.token_vectors) + len(each.weights) for each in answer.embeddings)
    return HttpResponse(200, await aside(num_bytes, partial(_whole, answer, asked)))


def _request(asked: Any) -> embedding_pb2.EmbedRequest:
    kinds = [_KINDS[each] for each in asked.kinds or ()]
    request = embedding_pb2.EmbedRequest(prompt_name=asked.prompt_name, kinds=kinds)
    for each in inputs_of(asked.input, "input", MAX_INPUTS):
        if isinstance(each, str):
            request.inputs.add(text=each)
        else:
            with in_range("input"):
                request.inputs.add().token_ids.ids.extend(each)
    return request


def _whole(answer: Any, asked: Any) -> bytes:
    shape = _as_base64 if asked.encoding_format == "base64" else list
    data = [
        {"object": "embedding", "index": index, **_vectors(each, shape)} for index, each in enumerate(answer.embeddings)
    ]
    whole = {
        "object": "list",
        "data": data,
        "model": asked.model,
        "usage": input_usage_of([answer.usage]),
        "system_fingerprint": name_of(answer.model),
    }
    return msgspec.json.encode(whole)


def _vectors(embedding: Any, shape: Callable[[Any], Any]) -> dict[str, Any]:
    """Return what there is of one input. What there is not, is not asked for."""
    found: dict[str, Any] = {}
    if len(embedding.values):
        found["embedding"] = shape(embedding.values)
    if num_tokens := len(embedding.token_ids):
        values, width = embedding.token_vectors, len(embedding.token_vectors) // num_tokens
        rows = (values[start : start + width] for start in range(0, len(values), width))
        found |= {"token_ids": list(embedding.token_ids), "token_embeddings": [shape(row) for row in rows]}
    if len(embedding.weights):
        found["token_weights"] = {str(each.token_id): each.weight for each in embedding.weights}
    return found


def _as_base64(values: Any) -> str:
    return base64.b64encode(np.array(values, "<f4").tobytes()).decode()
