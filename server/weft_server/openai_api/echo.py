"""`echo`: a completion begins with its prompt, which has scores too. Harnesses that evaluate models ask for these."""

from __future__ import annotations

from contextlib import aclosing
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Any

from weft_proto.decoding import PENALTIES
from weft_proto.v1 import common_pb2, generation_pb2, score_pb2, tokenization_pb2
from weft_proto.v1.methods import METHODS, streaming
from weft_server.errors import InvalidRequest
from weft_server.models.request_context import check_cache_salt
from weft_server.openai_api.echo_answers import Echoed
from weft_server.openai_api.log_probs import check_num_scores

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Sequence

    from weft_server.openai_api.api_request import ApiRequest

# Names of fields of the calls that are made for a prompt.
PARAMS = {"target_ids": "prompt", "target_ids.ids": "prompt"}
# Where nothing is generated. Harnesses send how to draw with all that they ask.
_HARMLESS = {"max_new_tokens", "greedy", "sampling", "num_outputs", "penalties"}


def check_echo(asked: Any, method: str) -> None:
    """Raise InvalidRequest for what `echo` is not for."""
    if method != "Generate":
        raise InvalidRequest("echo", "is for models that continue a prompt", "NOT_SUPPORTED")
    if asked.max_tokens == 0 and asked.n not in {None, 1}:
        raise InvalidRequest("n", "must be 1 with max_tokens 0: there is only the prompt")
    if asked.max_tokens == 0 and asked.explain:
        raise InvalidRequest("explain", "needs an answer, and max_tokens is 0")


def check_only_prompt(request: generation_pb2.GenerateRequest) -> None:
    """Raise InvalidRequest for a field that says how an answer is, where nothing is generated."""
    decoding = request.decoding
    given = [each.name for each, value in decoding.ListFields() if each.name not in _HARMLESS and value]
    given = [f"constraint.{decoding.constraint.WhichOneof('kind')}" if each == "constraint" else each for each in given]
    given += [row.path for row in PENALTIES if row.of(decoding.penalties) != row.default]
    if given:
        raise InvalidRequest(f"decoding.{given[0]}", "needs an answer, and max_tokens is 0")
    check_cache_salt(request.cache_salt)


@dataclass(slots=True)
class Echo:
    """Asks for the answers to the prompts of one request, and for the scores of the prompts.

    Attributes:
        usual_tokens: how many tokens of an answer are counted where the request gives no number.
    """

    http: ApiRequest
    asked: Any
    usual_tokens: int
    _num_scores: int = 0

    async def ask(self, request: generation_pb2.GenerateRequest) -> Echoed:
        """Return the response to a request for one prompt, and what is put before it.

        Its calls are answered by the version that the first of them finds. With `max_tokens` 0 nothing is generated.
        Raises InvalidRequest for a model whose single tokens do not tell what stands between a prompt and its answer.
        """
        prompt = await self._read(request)
        prompt.response = (
            await self._only_prompt(prompt, request)
            if self.asked.max_tokens == 0
            else await self.http.caller.unary(METHODS["Generate"], request)
        )
        return prompt

    async def stream(self, request: generation_pb2.GenerateRequest) -> AsyncGenerator[Any]:
        """Yield the prompt of a request, then the responses of its stream. Raises as `ask`.

        The first response comes before the prompt is given: what is refused is refused before anything was sent.
        """
        prompt = await self._read(request)
        twin = streaming("Generate")
        if self.asked.max_tokens == 0:
            final = await self._only_prompt(prompt, request)
            yield prompt
            yield twin.response(final=final)
            return
        async with aclosing(self.http.caller.stream(twin, twin.request(request=request))) as responses:
            first = await anext(responses)
            yield prompt
            yield first
            async for each in responses:
                yield each

    async def _read(self, request: generation_pb2.GenerateRequest) -> Echoed:
        """Return the prompt of a request, with its scores if they were asked for."""
        prompt = await self._prompt_of(request)
        self._count(len(prompt.ids))
        request.model.version = prompt.model.version
        if request.return_scores and len(prompt.ids) > 1:
            given = score_pb2.ScoreRequest(
                model=request.model,
                token_ids=common_pb2.TokenIds(ids=prompt.ids[:1]),
                target_ids=common_pb2.TokenIds(ids=prompt.ids[1:]),
                num_top_tokens=request.num_top_tokens,
                request_id=request.request_id,
            )
            prompt.scores = await self.http.caller.unary(METHODS["Score"], given)
        return prompt

    async def _only_prompt(
        self, prompt: Echoed, request: generation_pb2.GenerateRequest
    ) -> generation_pb2.GenerateResponse:
        """Return the response that has no answer."""
        model = prompt.scores.model
        if not prompt.scores.token_ids:
            # Score has not judged the prompt. So it is judged as one that goes on.
            request.decoding.max_new_tokens = 1
            model = (await self.http.caller.unary(METHODS["Generate"], request)).completion.model
        return _nothing_more(len(prompt.ids), model)

    async def _prompt_of(self, request: generation_pb2.GenerateRequest) -> Echoed:
        model, request_id = request.model, request.request_id
        if request.HasField("text"):
            cut = await self.http.caller.unary(
                METHODS["Tokenize"],
                tokenization_pb2.TokenizeRequest(model=model, text=request.text, request_id=request_id),
            )
            return self._echoed(request.text, cut.token_ids, cut, cut)
        ids = request.token_ids.ids
        joined = await self.http.caller.unary(
            METHODS["Detokenize"],
            tokenization_pb2.DetokenizeRequest(
                model=model, token_ids=ids, side=tokenization_pb2.SIDE_INPUT, request_id=request_id
            ),
        )
        return self._echoed(joined.text, ids, joined)

    def _echoed(self, text: str, ids: Sequence[int], told: Any, cut: Any = None) -> Echoed:
        spelling = self.http.spelling_of(told.model)
        if spelling is None:
            why = "is not for this model: a token alone does not tell its text"
            raise InvalidRequest("echo", why, "NOT_SUPPORTED")
        # The same tokens come again and again.
        spelling = cache(spelling)
        return Echoed(text, ids, told.tokens, told.model, spelling, self.http.has_seams(told.model), cut)

    def _count(self, num_prompt_tokens: int) -> None:
        """Raise InvalidRequest for more log-probabilities than an answer may have: each choice has its prompt's."""
        if self.asked.logprobs is None:
            return
        new = self.usual_tokens if self.asked.max_tokens is None else self.asked.max_tokens
        self._num_scores += (self.asked.n or 1) * (num_prompt_tokens + new) * (1 + self.asked.logprobs)
        check_num_scores(self._num_scores)


def _nothing_more(num_prompt_tokens: int, model: common_pb2.ResolvedModel) -> generation_pb2.GenerateResponse:
    return generation_pb2.GenerateResponse(
        completion=common_pb2.Completion(
            finish_reason=common_pb2.FINISH_REASON_LENGTH,
            usage=common_pb2.Usage(input_tokens=num_prompt_tokens),
            decoding=common_pb2.Decoding(num_outputs=1),
            model=model,
        )
    )
