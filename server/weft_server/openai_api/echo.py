"""`echo`: a completion begins with its prompt, which has scores too. Harnesses that evaluate models ask for these."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from weft_proto.v1 import common_pb2, generation_pb2, score_pb2, tokenization_pb2
from weft_proto.v1.methods import METHODS
from weft_server.errors import InvalidRequest

if TYPE_CHECKING:
    from collections.abc import Sequence

    from weft_server.openai_api.api_request import ApiRequest, Spelling

# Names of fields of the calls that are made for a prompt.
PARAMS = {"target_ids": "prompt", "target_ids.ids": "prompt"}


def check_echo(asked: Any, method: str) -> None:
    """Raise InvalidRequest for what `echo` is not for."""
    if method != "Generate":
        raise InvalidRequest("echo", "is for models that continue a prompt", "NOT_SUPPORTED")
    if asked.stream:
        raise InvalidRequest("echo", "is not for a stream", "NOT_SUPPORTED")
    if asked.max_tokens == 0 and (asked.n or 1) != 1:
        raise InvalidRequest("n", "must be 1 with max_tokens 0: there is only the prompt")
    if asked.max_tokens == 0 and asked.explain:
        raise InvalidRequest("explain", "needs an answer, and max_tokens is 0")


async def echoed(http: ApiRequest, asked: Any, request: generation_pb2.GenerateRequest) -> Any:
    """Return the response to a request for one prompt, with the prompt before each answer.

    Its calls are answered by the version that the first of them finds. With `max_tokens` 0 nothing is generated.
    Raises InvalidRequest for a model whose single tokens do not tell what stands between a prompt and its answer.
    """
    prompt = await _prompt_of(http, request)
    spelling = http.spelling_of(prompt.model)
    if spelling is None:
        raise InvalidRequest("echo", "is not for this model: a token alone does not tell its text", "NOT_SUPPORTED")
    request.model.version = prompt.model.version
    scores = score_pb2.ScoreResponse()
    if request.return_scores and len(prompt.ids) > 1:
        given = score_pb2.ScoreRequest(
            model=request.model,
            token_ids=common_pb2.TokenIds(ids=prompt.ids[:1]),
            target_ids=common_pb2.TokenIds(ids=prompt.ids[1:]),
            num_top_tokens=request.num_top_tokens,
            request_id=request.request_id,
        )
        scores = await http.caller.unary(METHODS["Score"], given)
    if asked.max_tokens == 0:
        response = _nothing_more(prompt)
    else:
        response = await http.caller.unary(METHODS["Generate"], request)
    for output in (response.completion, *response.completion.others):
        _put_before(output, prompt, scores, spelling, scored=request.return_scores)
    return response


class _Prompt(NamedTuple):
    """A prompt as the model reads it. `pieces` are its tokens to show."""

    text: str
    ids: Sequence[int]
    pieces: Sequence[str]
    model: common_pb2.ResolvedModel


async def _prompt_of(http: ApiRequest, request: generation_pb2.GenerateRequest) -> _Prompt:
    plain, request_id = common_pb2.ModelSelector(), request.request_id
    plain.CopyFrom(request.model)
    # It changes no tokens.
    plain.ClearField("adapter")
    if request.HasField("text"):
        cut = await http.caller.unary(
            METHODS["Tokenize"],
            tokenization_pb2.TokenizeRequest(model=plain, text=request.text, request_id=request_id),
        )
        return _Prompt(request.text, cut.token_ids, cut.tokens, cut.model)
    ids = request.token_ids.ids
    joined = await http.caller.unary(
        METHODS["Detokenize"],
        tokenization_pb2.DetokenizeRequest(
            model=plain, token_ids=ids, side=tokenization_pb2.SIDE_INPUT, request_id=request_id
        ),
    )
    return _Prompt(joined.text, ids, joined.tokens, joined.model)


def _nothing_more(prompt: _Prompt) -> generation_pb2.GenerateResponse:
    return generation_pb2.GenerateResponse(
        completion=common_pb2.Completion(
            finish_reason=common_pb2.FINISH_REASON_LENGTH,
            usage=common_pb2.Usage(input_tokens=len(prompt.ids)),
            decoding=common_pb2.Decoding(num_outputs=1),
            model=prompt.model,
        )
    )


def _put_before(
    output: Any, prompt: _Prompt, scores: score_pb2.ScoreResponse, spelling: Spelling, *, scored: bool
) -> None:
    """Put a prompt before an answer. An answer alone begins without the space that stands before its first word."""
    words = (id_ for id_ in output.token_ids if spelling(id_, True) is not None)
    space = b""
    if prompt.text and output.text and (word := next(words, None)) is not None:
        space = (spelling(word, False) or b"").removesuffix(spelling(word, True) or b"")
    output.text = prompt.text + space.decode() + output.text
    if not scored:
        return
    output.token_ids[:] = [*prompt.ids, *output.token_ids]
    output.tokens[:] = [*prompt.pieces, *output.tokens]
    # The first one has no score: its place is left empty.
    output.token_log_probs[:] = [0.0, *scores.token_log_probs, *output.token_log_probs]
    if tops := [*scores.top_tokens, *output.top_tokens]:
        del output.top_tokens[:]
        output.top_tokens.extend([common_pb2.TopTokens(), *tops])
