"""Tokenize and Detokenize: tokens are made of texts, and texts of tokens."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from weft_proto.tasks import TASKS
from weft_proto.v1 import tokenization_pb2
from weft_server.errors import InvalidRequest
from weft_server.preprocessing.tokenizer_side import Around, TokenizerSide
from weft_server.rpc.languages import LANGUAGES, frame_of
from weft_server.rpc.responses import resolved_proto

if TYPE_CHECKING:
    from weft_proto.v1 import common_pb2, generation_pb2
    from weft_server.models.model import Model
    from weft_server.models.registry import ModelRegistry, RegistryEntry
    from weft_server.models.request_context import RequestContext
    from weft_server.preprocessing.wanted import Wanted

_UNSPECIFIED = tokenization_pb2.SIDE_UNSPECIFIED
_INPUT = tokenization_pb2.SIDE_INPUT
_OUTPUT = tokenization_pb2.SIDE_OUTPUT


async def answer_tokenize(models: ModelRegistry, call: RequestContext, request: Any) -> Any:
    """Answer with the tokens of a text."""
    model = await _taken(models, call, request, _INPUT)
    which = _meant(model.name, model.manifest.task, request.side, _INPUT)
    kind = request.WhichOneof("input")
    if kind is None:
        raise InvalidRequest("input", "is required: text or messages", "EMPTY_INPUT")
    if kind == "messages":
        _check_messages(model, request.messages, which)
    side, around = _side_of(model, which), _around(model, request, which)
    answer = tokenization_pb2.TokenizeResponse(
        model=resolved_proto(model.name, model.version), request_id=call.request_id
    )

    def fill(wanted: Wanted) -> None:
        if kind == "messages":
            answer.prompt = model.reader.prompt_of(request.messages, "messages", wanted)
        text = answer.prompt or request.text
        side.check(text, kind)
        framed = around if kind == "text" else around._replace(framed=not model.reader.is_framed(text))
        if request.count_only:
            answer.num_tokens = side.count(text, kind, framed)
            return
        pieces = side.split(text, kind, framed)
        wanted.check()
        answer.num_tokens = len(pieces)
        answer.token_ids.extend([piece.id for piece in pieces])
        answer.tokens.extend(side.pieces(answer.token_ids))
        answer.starts.extend([piece.start for piece in pieces])
        answer.ends.extend([piece.end for piece in pieces])
        answer.added.extend([piece.added for piece in pieces])

    await model.tokenizing.do(fill, call.deadline, call.standing)
    return answer


async def answer_detokenize(models: ModelRegistry, call: RequestContext, request: Any) -> Any:
    """Answer with the text of some tokens."""
    model = await _taken(models, call, request, _OUTPUT)
    side = _side_of(model, _meant(model.name, model.manifest.task, request.side, _OUTPUT))

    def read(_: Wanted) -> dict[str, Any]:
        ids = side.read_ids(request.token_ids, "token_ids")
        return {"text": side.text(ids), "tokens": side.pieces(ids)}

    return tokenization_pb2.DetokenizeResponse(
        **await model.tokenizing.do(read, call.deadline, call.standing),
        model=resolved_proto(model.name, model.version),
        request_id=call.request_id,
    )


async def _taken(models: ModelRegistry, call: RequestContext, request: Any, default: int) -> Model:
    """Take the model that a request names. One that has no such side is refused before it is woken."""

    def check(entry: RegistryEntry) -> None:
        _meant(entry.name, entry.task, request.side, default)

    return await models.take_named(call, request.model, check)


def _meant(name: str, task: common_pb2.Task.ValueType, asked: int, default: int) -> int:
    """Return which side of a model is asked for. Raises InvalidRequest for one that it has not."""
    row = TASKS[task]
    sides = [side for side, has in ((_INPUT, row.reads_text), (_OUTPUT, row.writes_text)) if has]
    if not sides:
        why = f"{name!r} is for {row.name}, and has no tokenizer"
        raise InvalidRequest("model.name", why, "WRONG_INPUT_KIND")
    if asked == _UNSPECIFIED:
        return default if default in sides else sides[0]
    if asked not in {_INPUT, _OUTPUT}:
        raise InvalidRequest("side", f"must be SIDE_INPUT or SIDE_OUTPUT, not {asked}")
    if asked not in sides:
        why = f"SIDE_OUTPUT: {name!r} takes no text" if asked == _INPUT else f"SIDE_INPUT: {name!r} writes no text"
        raise InvalidRequest("side", f"must be {why}", "WRONG_INPUT_KIND")
    return asked


def _side_of(model: Model, which: int) -> TokenizerSide:
    text = model.manifest.text
    if which == _INPUT:
        return TokenizerSide(model.source_tokenizer, text.source_vocab_size, model.reader.max_tokens)
    return TokenizerSide(model.target_tokenizer, text.target_vocab_size, text.max_new_tokens)


def _check_messages(model: Model, messages: generation_pb2.Messages, which: int) -> None:
    if which != _INPUT:
        raise InvalidRequest("messages", "are for SIDE_INPUT: they make a prompt", "WRONG_INPUT_KIND")
    if not model.reader.takes_messages:
        why = f"are not taken by the model {model.name!r}, which has no chat template: give text"
        raise InvalidRequest("messages", why, "WRONG_INPUT_KIND")
    for index, turn in enumerate(messages.turns):
        if any(part.HasField("image") for part in turn.parts):
            why = "hold a picture, and only texts are shown as tokens"
            raise InvalidRequest(f"messages.turns[{index}].parts", why, "NOT_SUPPORTED")


def _around(model: Model, request: Any, which: int) -> Around:
    """Return what the model is given around a text, or gives behind it."""
    if which == _OUTPUT:
        for field in LANGUAGES:
            if getattr(request, field):
                raise InvalidRequest(field, "is for SIDE_INPUT: what a model writes holds no token for it")
        return Around(after=tuple(model.manifest.text.end_ids[:1]), framed=False)
    frame = frame_of(model, request)
    return Around(frame.before, frame.after)
