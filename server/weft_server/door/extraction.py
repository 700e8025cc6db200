"""Answers a question with spans of a context."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from weft_proto.v1 import classification_pb2
from weft_server.content.extraction import ExtractInput
from weft_server.door.alignment import explain_rows, reading_of
from weft_server.door.messages import about
from weft_server.errors import InvalidRequest
from weft_server.serving.completion import classify, finishing

if TYPE_CHECKING:
    from weft_server.serving.call import Call
    from weft_server.serving.model import Model

# As in transformers' pipeline.
DEFAULT_ANSWER_TOKENS = 15
MAX_ANSWERS = 20
MAX_ANSWER_TOKENS = 128


async def extracted(call: Call, model: Model, request: classification_pb2.ExtractRequest) -> Any:
    """Answer with the most probable spans. Raises RequestError."""
    assert model.source_tokenizer is not None, "an extractor without its tokenizer was accepted. This is a bug."
    top_k = request.top_k if request.HasField("top_k") else 1
    _check_within("top_k", top_k, MAX_ANSWERS)
    given = request.HasField("max_answer_tokens")
    max_answer_tokens = request.max_answer_tokens if given else DEFAULT_ANSWER_TOKENS
    _check_within("max_answer_tokens", max_answer_tokens, MAX_ANSWER_TOKENS)
    source = ExtractInput(model.reader, model.source_tokenizer, request.question, request.context)
    with reading_of(model, request) as reading:
        sequence, reason, logits = await classify(call, model, lambda _: source.read())
        answers = source.answers(
            logits, top_k=top_k, max_answer_tokens=max_answer_tokens, allow_no_answer=request.allow_no_answer
        )
        answer = classification_pb2.ExtractResponse(answers=answers, **about(call, model, sequence))
        with finishing(model, (sequence,), reason):
            if reading:
                await explain_rows(answer.alignment, model, reading, sequence, source.pieces())
    return answer


def _check_within(field: str, value: int, most: int) -> None:
    if not 1 <= value <= most:
        raise InvalidRequest(field, f"must be 1..{most}, not {value}")
