"""Embed: texts or pictures are turned into vectors."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from weft_proto.token_vectors import MAX_KINDS, vector_kinds
from weft_proto.v1 import common_pb2, embedding_pb2
from weft_server.errors import InvalidRequest
from weft_server.requests.embed import MAX_INPUTS, embed, vector_of
from weft_server.requests.generate import finishing
from weft_server.requests.token_vectors import token_vectors_of, weights_of
from weft_server.rpc.alignment import explain_rows, reading_of
from weft_server.rpc.responses import about, packed, written
from weft_server.sequence import FinishReason

if TYPE_CHECKING:
    from weft_proto.v1 import bundle_pb2
    from weft_server.models.model import Model
    from weft_server.models.registry import ModelRegistry
    from weft_server.models.request_context import RequestContext
    from weft_server.sequence import Sequence

_WHOLE, _TOKENS = common_pb2.VECTOR_KIND_WHOLE, common_pb2.VECTOR_KIND_TOKENS
_WEIGHTS = common_pb2.VECTOR_KIND_WEIGHTS
_TASKS = {
    "text": (common_pb2.TASK_EMBED_TEXT, common_pb2.TASK_MATCH),
    "token_ids": (common_pb2.TASK_EMBED_TEXT, common_pb2.TASK_MATCH),
    "image": (common_pb2.TASK_EMBED_IMAGE, common_pb2.TASK_MATCH),
}


async def answer_embed(models: ModelRegistry, call: RequestContext, request: embedding_pb2.EmbedRequest) -> Any:
    """Answer with a vector for each input, or with several."""
    model = await models.take(call, request.model, *_tasks_of(request))
    kinds = _kinds(request, model)
    _check_explain(request, model)
    dimensions = _dimensions(request, model)
    prompt = model.reader.prompts.of(request, (each.WhichOneof("input") for each in request.inputs))
    with reading_of(model, request) as reading:
        sequences = await embed(call, model, request.inputs, prompt, only_whole=kinds == {_WHOLE})
        answer = embedding_pb2.EmbedResponse(**about(call, model, *sequences))

        def fill() -> None:
            for sequence in sequences:
                embedding = answer.embeddings.add(input_tokens=sequence.num_input_tokens)
                _fill(embedding, sequence, model.manifest.embedding, kinds, dimensions)

        # One vector of each is soon written. Those of all tokens may be millions of numbers.
        num_tokens = sum(sequence.num_input_tokens for sequence in sequences)
        await written(call, model, num_tokens if kinds - {_WHOLE} else 0, fill)
        with finishing(model, sequences, FinishReason.STOP):
            if reading:
                await explain_rows(answer.alignment, model, reading, sequences[0], ["embedding"])
    return answer


def _tasks_of(request: embedding_pb2.EmbedRequest) -> tuple[common_pb2.Task.ValueType, ...]:
    """Return what embeds the inputs. Of a request with too many none is looked at, and nothing is awaited before."""
    count = len(request.inputs)
    if not count:
        raise InvalidRequest("inputs", "must not be empty", "EMPTY_INPUT")
    if count > MAX_INPUTS:
        raise InvalidRequest("inputs", f"must be 1..{MAX_INPUTS}, not {count}", "INPUT_TOO_LONG")
    if count > 1 and request.HasField("explain"):
        raise InvalidRequest("explain", f"is for one input, and there are {count}")
    found = []
    for index, each in enumerate(request.inputs):
        tasks = _TASKS.get(each.WhichOneof("input") or "")
        if tasks is None:
            raise InvalidRequest(f"inputs[{index}].input", "is required: text, token_ids or image", "EMPTY_INPUT")
        found.append(tasks)
        if tasks != found[0]:
            why = "is of another kind than inputs[0]: all are texts, or all are pictures"
            field = f"inputs[{index}].{request.inputs[index].WhichOneof('input')}"
            raise InvalidRequest(field, why, "WRONG_INPUT_KIND")
    return found[0]


def _fill(
    embedding: embedding_pb2.Embedding,
    sequence: Sequence,
    spec: bundle_pb2.EmbeddingSpec,
    kinds: set[common_pb2.VectorKind.ValueType],
    dimensions: int,
) -> None:
    """Write the vectors of one input."""
    if _WHOLE in kinds:
        vector = vector_of(sequence, spec, dimensions)
        embedding.MergeFromString(packed(embedding_pb2.Embedding.VALUES_FIELD_NUMBER, vector))
    if _TOKENS in kinds:
        found = token_vectors_of(sequence, spec, dimensions)
        embedding.token_ids.extend(found.token_ids.tolist())
        embedding.MergeFromString(packed(embedding_pb2.Embedding.TOKEN_VECTORS_FIELD_NUMBER, found.vectors))
    if _WEIGHTS in kinds:
        for token, weight in weights_of(sequence, spec).items():
            embedding.weights.add(token_id=token, weight=weight)


def _kinds(request: embedding_pb2.EmbedRequest, model: Model) -> set[common_pb2.VectorKind.ValueType]:
    """Return what is asked for. Raises InvalidRequest for what the model does not make."""
    if len(request.kinds) > MAX_KINDS:
        raise InvalidRequest("kinds", f"must be at most {MAX_KINDS}, not {len(request.kinds)}")
    known = vector_kinds(model.manifest.embedding)
    for index, kind in enumerate(request.kinds):
        if kind not in known:
            names = ", ".join(common_pb2.VectorKind.Name(each) for each in known)
            raise InvalidRequest(f"kinds[{index}]", f"must be one of {names}, which {model.name!r} makes, not {kind}")
    return set(request.kinds) or {known[0]}


def _check_explain(request: embedding_pb2.EmbedRequest, model: Model) -> None:
    is_text = request.inputs[0].WhichOneof("input") != "image"
    if request.HasField("explain") and is_text and model.manifest.HasField("matching"):
        raise InvalidRequest("explain", f"is for pictures: {model.name!r} does not say it of texts")


def _dimensions(request: embedding_pb2.EmbedRequest, model: Model) -> int:
    most = model.manifest.embedding.dimensions
    if not request.HasField("dimensions"):
        return most
    if not 1 <= request.dimensions <= most:
        raise InvalidRequest("dimensions", f"must be 1..{most}, not {request.dimensions}")
    return request.dimensions
