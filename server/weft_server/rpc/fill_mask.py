"""FillMask: the tokens that fit in the places of a text's masks."""

from __future__ import annotations

from contextlib import ExitStack
from typing import TYPE_CHECKING, Any

from weft_proto.v1 import classification_pb2
from weft_proto.v1.methods import METHODS
from weft_server.errors import InvalidRequest
from weft_server.models.held_bytes import HeldBytes
from weft_server.preprocessing.masked_text import MAX_TARGETS, FillMaskInput
from weft_server.requests.generate import classify, finishing
from weft_server.rpc.alignment import explain_rows, reading_of
from weft_server.rpc.responses import about
from weft_server.source import Masked

if TYPE_CHECKING:
    from weft_server.models.registry import ModelRegistry
    from weft_server.models.request_context import RequestContext
    from weft_server.source import Source

# As in transformers' pipeline.
DEFAULT_TOP_K = 5
MAX_TOP_K = 100
# Of the logits of all requests, and of those of one tenant that has a name. A mask takes 4 bytes for each token of the
# vocabulary: 1 MB where that has 250,000.
MAX_BYTES = 256 << 20
MAX_BYTES_OF_TENANT = MAX_BYTES // 2
# Of this process. They are held while a request waits for a worker, when its place in the engine is others' already.
LOGITS = HeldBytes("the logits of these masks take", MAX_BYTES, MAX_BYTES_OF_TENANT)
_LOGIT_BYTES = 4


async def answer_fill_mask(
    models: ModelRegistry, call: RequestContext, request: classification_pb2.FillMaskRequest
) -> Any:
    """Answer with the most probable fillings of each mask. Raises RequestError."""
    model = await models.take(call, request.model, *METHODS["FillMask"].tasks)
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
    with reading_of(model, request) as reading, ExitStack() as held:

        def admit(read: Source) -> None:
            assert isinstance(read, Masked)
            tenant, size = call.standing.tenant, read.num_masks * text.source_vocab_size * _LOGIT_BYTES
            LOGITS.take(size, tenant)
            held.callback(LOGITS.give_back, size, tenant)

        sequence, reason, logits = await classify(call, model, lambda _: source.read(), admit)
        with finishing(model, (sequence,), reason):
            # In a worker: to look through a large vocabulary takes milliseconds.
            masks = await model.work(lambda _: source.filled(logits, top_k), call.deadline)
            answer = classification_pb2.FillMaskResponse(masks=masks, **about(call, model, sequence))
            if reading:
                await explain_rows(answer.alignment, model, reading, sequence, source.pieces())
    return answer
