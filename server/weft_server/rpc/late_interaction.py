"""Score of a model with a vector for each token: how well a query and a document match."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from weft_proto.v1 import common_pb2, embedding_pb2, score_pb2
from weft_server.errors import InvalidRequest
from weft_server.requests.embed import run_together
from weft_server.requests.generate import finishing, input_of, source_of
from weft_server.requests.token_vectors import check_room, matched, token_vectors_of
from weft_server.rpc.responses import about, written
from weft_server.sequence import FinishReason

if TYPE_CHECKING:
    from weft_server.models.model import Model
    from weft_server.models.request_context import RequestContext
    from weft_server.source import Source

_QUERY, _DOCUMENT = "query", "document"
_TARGETS = {"target_text": "text", "target_ids": "token_ids"}


async def match_texts(call: RequestContext, model: Model, request: score_pb2.ScoreRequest) -> Any:
    """Answer with what each token of the query met in the document."""
    _check(model, request)
    spec = model.manifest.embedding

    async def read() -> list[Source]:
        kind = request.WhichOneof("source") or ""
        sources = [await _read(call, model, request, kind, kind, _QUERY)]
        target = request.WhichOneof("target") or ""
        field = _TARGETS[target]
        document = embedding_pb2.EmbedInput()
        if field == "text":
            document.text = request.target_text
        else:
            document.token_ids.CopyFrom(request.target_ids)
        sources.append(await _read(call, model, document, field, target, _DOCUMENT))
        check_room(sources, spec)
        return sources

    sequences = await run_together(call, model, 2, read)
    with finishing(model, sequences, FinishReason.STOP):
        query, document = (token_vectors_of(each, spec, spec.dimensions) for each in sequences)
        for field, found in (("text", query), ("target_text", document)):
            if not len(found.token_ids):
                raise InvalidRequest(field, "has no token that keeps a vector", "EMPTY_INPUT")
        usage = common_pb2.Usage(input_tokens=sum(each.num_input_tokens for each in sequences))
        answer = score_pb2.ScoreResponse(**about(call, model, *sequences, usage=usage))

        def fill() -> None:
            found = matched(query, document, averages=spec.tokens.averages)
            answer.total = found.total
            for ids, pieces, vectors in (
                (answer.token_ids, answer.tokens, query),
                (answer.target_token_ids, answer.target_tokens, document),
            ):
                ids.extend(vectors.token_ids.tolist())
                pieces.extend(model.source_tokenizer.pieces(ids))
            for place, score in zip(found.places.tolist(), found.scores.tolist(), strict=True):
                answer.matches.add(place=place, score=score)

        await written(call, model, len(query.token_ids) + len(document.token_ids), fill)
    return answer


async def _read(call: RequestContext, model: Model, each: Any, kind: str, field: str, side: str) -> Source:
    """Read one of both texts. What is refused is named as it is in the request."""
    prompts = model.reader.prompts
    try:
        read = input_of(model, each, kind, model.languages.plain, prompts.named(side) if prompts.knows(side) else None)
        return await source_of(call, model, read)
    except InvalidRequest as error:
        place = field + error.field.removeprefix(kind)
        raise InvalidRequest(place, error.message.removeprefix(error.field).lstrip(), error.reason) from error


def _check(model: Model, request: score_pb2.ScoreRequest) -> None:
    """Raise InvalidRequest for what is missing, or not for such a model."""
    kind, target = request.WhichOneof("source"), request.WhichOneof("target")
    if kind is None:
        raise InvalidRequest("source", "is required: text or token_ids", "EMPTY_INPUT")
    if kind not in _TARGETS.values():
        raise InvalidRequest(kind, f"is not what the model {model.name!r} takes: give text", "WRONG_INPUT_KIND")
    if target is None:
        raise InvalidRequest("target", "is required: target_text or target_ids", "EMPTY_INPUT")
    for field in ("source_language", "target_language", "num_top_tokens"):
        if getattr(request, field):
            raise InvalidRequest(field, f"is for models that produce text, and {model.name!r} makes vectors")
