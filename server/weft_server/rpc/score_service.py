"""Score: how probable a model finds a given answer."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from weft_proto.bundle_rules import MAX_TOP_TOKENS
from weft_proto.tasks import TASKS
from weft_proto.token_vectors import has_token_vectors
from weft_proto.v1 import common_pb2, score_pb2
from weft_server.errors import InvalidRequest
from weft_server.requests.generate import finishing, input_of
from weft_server.requests.score import score, target_of
from weft_server.rpc.languages import frame_of
from weft_server.rpc.late_interaction import match_texts
from weft_server.rpc.responses import about, add_tops, written
from weft_server.sequence import FinishReason

if TYPE_CHECKING:
    from weft_server.models.model import Model
    from weft_server.models.registry import ModelRegistry
    from weft_server.models.request_context import RequestContext


async def answer_score(models: ModelRegistry, call: RequestContext, request: score_pb2.ScoreRequest) -> Any:
    """Answer with the log-probability of each token of the target, or with how well two texts match."""
    model = await models.take_scorer(call, request.model)
    if has_token_vectors(model.manifest):
        return await match_texts(call, model, request)
    if not TASKS[model.manifest.task].writes_text:
        why = f"{model.name!r} makes one vector of a text, and scores nothing"
        raise InvalidRequest("model.name", why, "WRONG_INPUT_KIND")
    kind = _source_kind(model, request)
    frame = frame_of(model, request)
    if request.num_top_tokens > MAX_TOP_TOKENS:
        raise InvalidRequest("num_top_tokens", f"must be 0..{MAX_TOP_TOKENS}, not {request.num_top_tokens}")
    target = target_of(model, request, frame.prefix)
    read = input_of(model, request, kind, frame)
    sequence, source, token_ids, scores = await score(call, model, read, target, frame.prefix)
    log_probs = scores.log_probs.tolist()
    with finishing(model, (sequence,), FinishReason.STOP):
        tokenizer = model.target_tokenizer
        usage = common_pb2.Usage(input_tokens=source.num_tokens, output_tokens=len(token_ids))
        answer = score_pb2.ScoreResponse(
            total=math.fsum(log_probs),
            token_ids=token_ids,
            token_log_probs=log_probs,
            tokens=tokenizer.pieces(token_ids),
            **about(call, model, sequence, usage=usage),
        )
        if number := request.num_top_tokens:

            def write() -> None:
                tops = (scores.top_ids[:, :number].tolist(), scores.top_log_probs[:, :number].tolist())
                add_tops(answer.top_tokens, tokenizer, zip(*tops, strict=True))

            await written(call, model, len(token_ids), write)
        return answer


def _source_kind(model: Model, request: Any) -> str:
    """Return the field that holds the source. Raises InvalidRequest unless the model takes it."""
    kind: str | None = request.WhichOneof("source")
    task = TASKS[model.manifest.task]
    taken = ("image",) if task.takes_image else ("audio",) if task.takes_audio else ("text", "token_ids")
    kinds = "audio, a WAV or FLAC file" if task.takes_audio else " or ".join(taken)
    if kind is None:
        raise InvalidRequest("source", f"is required: {kinds}", "EMPTY_INPUT")
    if kind not in taken:
        raise InvalidRequest(kind, f"is not what the model {model.name!r} takes: give {kinds}", "WRONG_INPUT_KIND")
    return kind
