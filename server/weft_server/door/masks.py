"""Answers with the tokens that fit in the places of a text's masks."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from weft_proto.v1 import classification_pb2
from weft_server.content.masks import MAX_TARGETS, FillMaskInput
from weft_server.door.alignment import explain_rows, reading_of
from weft_server.door.messages import about
from weft_server.errors import InvalidRequest
from weft_server.serving.completion import classify, finishing

if TYPE_CHECKING:
    from weft_server.serving.call import Call
    from weft_server.serving.model import Model

# As in transformers' pipeline.
DEFAULT_TOP_K = 5
MAX_TOP_K = 100


async def filled(call: Call, model: Model, request: classification_pb2.FillMaskRequest) -> Any:
    """Answer with the most probable fillings of each mask. Raises RequestError."""
    assert model.source_tokenizer is not None, "a model without its tokenizer was accepted. This is a bug."
    text = model.manifest.text
    most = min(MAX_TOP_K, text.source_vocab_size)
    top_k = request.top_k if request.HasField("top_k") else min(DEFAULT_TOP_K, most)
    if not 1 <= top_k <= most:
        raise InvalidRequest("top_k", f"must be 1..{most}, not {top_k}")
    if len(request.targets) > MAX_TARGETS:
        why = f"are {len(request.targets)}; at most {MAX_TARGETS} are taken"
        raise InvalidRequest("targets", why, "INPUT_TOO_LONG")
    source = FillMaskInput(
        model.reader, model.source_tokenizer, text.mask_id, request.text, targets=tuple(request.targets)
    )
    with reading_of(model, request) as reading:
        sequence, reason, logits = await classify(call, model, lambda _: source.read())
        with finishing(model, (sequence,), reason):
            # In a worker: to look through a large vocabulary takes milliseconds.
            masks = await model.work(lambda _: source.filled(logits, top_k), call.deadline)
            answer = classification_pb2.FillMaskResponse(masks=masks, **about(call, model, sequence))
            if reading:
                await explain_rows(answer.alignment, model, reading, sequence, source.pieces())
    return answer
