"""Extract: a question is answered with spans of a context."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from weft_proto.v1 import classification_pb2
from weft_proto.v1.methods import METHODS
from weft_server.errors import InvalidRequest
from weft_server.preprocessing.question_answering import ExtractInput, Windowing
from weft_server.requests.embed import run_together
from weft_server.requests.generate import finishing
from weft_server.rpc.alignment import explain_rows, reading_of
from weft_server.rpc.responses import about
from weft_server.sequence import FinishReason

if TYPE_CHECKING:
    from weft_server.models.registry import ModelRegistry
    from weft_server.models.request_context import RequestContext
    from weft_server.preprocessing.wanted import Wanted
    from weft_server.source import Ids, Source

# As in transformers' pipeline.
DEFAULT_ANSWER_TOKENS = 15
MAX_ANSWERS = 20
MAX_ANSWER_TOKENS = 128
# From so many tokens on, of all windows, a worker looks for the answers: that takes 0.3 to 1.2 ms for a thousand, and
# up to 24 ms for 8,190. For fewer it takes less than waiting behind the texts of others.
MANY_TOKENS = 1000


async def answer_extract(
    models: ModelRegistry, call: RequestContext, request: classification_pb2.ExtractRequest
) -> Any:
    """Answer with the most probable spans. Raises RequestError."""
    model = await models.take(call, request.model, *METHODS["Extract"].tasks)
    top_k = request.top_k if request.HasField("top_k") else 1
    _check_within("top_k", top_k, MAX_ANSWERS)
    given = request.HasField("max_answer_tokens")
    max_answer_tokens = request.max_answer_tokens if given else DEFAULT_ANSWER_TOKENS
    _check_within("max_answer_tokens", max_answer_tokens, MAX_ANSWER_TOKENS)
    source = ExtractInput(model.reader, model.source_tokenizer, request.question, request.context)
    windowing = _windowing(request)

    def windows(_: Wanted) -> list[Ids]:
        found = source.read(windowing, allow_no_answer=request.allow_no_answer)
        _check_count(len(found), model.engine.max_queued(call.standing), explains=request.HasField("explain"))
        return found

    async def read() -> list[Source]:
        return [*await model.work(windows, call.deadline)]

    with reading_of(model, request) as reading:
        sequences = await run_together(call, model, 1, read)
        logits = [sequence.reply.values for sequence in sequences]

        def answers(_: Wanted | None = None) -> list[classification_pb2.ExtractedAnswer]:
            return source.answers(
                logits, top_k=top_k, max_answer_tokens=max_answer_tokens, allow_no_answer=request.allow_no_answer
            )

        is_long = sum(len(each) for each in logits) >= MANY_TOKENS
        found = await model.work(answers, call.deadline) if is_long else answers()
        answer = classification_pb2.ExtractResponse(answers=found, **about(call, model, *sequences))
        with finishing(model, sequences, FinishReason.STOP):
            if reading:
                await explain_rows(answer.alignment, model, reading, sequences[0], source.pieces())
    return answer


def _windowing(request: classification_pb2.ExtractRequest) -> Windowing:
    return Windowing(
        request.max_seq_len if request.HasField("max_seq_len") else None,
        request.doc_stride if request.HasField("doc_stride") else None,
    )


def _check_count(num_windows: int, most: int, *, explains: bool) -> None:
    """Refuse windows of a context that cannot all wait together, or that would all have to be explained."""
    if num_windows > most:
        why = f"makes {num_windows} windows, and this server lets {most} wait: ask about parts of it"
        raise InvalidRequest("context", why, "INPUT_TOO_LONG")
    if explains and num_windows > 1:
        raise InvalidRequest("explain", f"is for a context of one window, and this one makes {num_windows}")


def _check_within(field: str, value: int, most: int) -> None:
    if not 1 <= value <= most:
        raise InvalidRequest(field, f"must be 1..{most}, not {value}")
