"""Embed: texts or pictures are turned into vectors."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from weft_proto.v1 import common_pb2, embedding_pb2
from weft_server.errors import InvalidRequest
from weft_server.requests.embed import MAX_INPUTS, embed, vector_of
from weft_server.requests.generate import finishing
from weft_server.rpc.alignment import explain_rows, reading_of
from weft_server.rpc.responses import about, packed
from weft_server.sequence import FinishReason

if TYPE_CHECKING:
    from weft_server.models.model import Model
    from weft_server.models.registry import ModelRegistry
    from weft_server.models.request_context import RequestContext

_TASKS = {
    "text": (common_pb2.TASK_EMBED_TEXT, common_pb2.TASK_MATCH),
    "token_ids": (common_pb2.TASK_EMBED_TEXT, common_pb2.TASK_MATCH),
    "image": (common_pb2.TASK_EMBED_IMAGE, common_pb2.TASK_MATCH),
}


async def answer_embed(models: ModelRegistry, call: RequestContext, request: embedding_pb2.EmbedRequest) -> Any:
    """Answer with a vector for each input."""
    model = await models.take(call, request.model, *_tasks_of(request))
    _check_explain(request, model)
    dimensions = _dimensions(request, model)
    prompt = model.reader.prompts.of(request, (each.WhichOneof("input") for each in request.inputs))
    with reading_of(model, request) as reading:
        sequences = await embed(call, model, request.inputs, prompt)
        answer = embedding_pb2.EmbedResponse(**about(call, model, *sequences))
        for sequence in sequences:
            vector = vector_of(sequence, dimensions, normalized=model.manifest.embedding.normalized)
            embedding = answer.embeddings.add(input_tokens=sequence.num_input_tokens)
            embedding.MergeFromString(packed(embedding_pb2.Embedding.VALUES_FIELD_NUMBER, vector))
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
