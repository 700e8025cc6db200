"""POST /v1/completions: one prompt or several to their continuations, or a text to its translation."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

from weft_proto.v1 import common_pb2, generation_pb2, translation_pb2
from weft_proto.v1.methods import METHODS
from weft_server.api.aside import aside
from weft_server.api.http_messages import HttpResponse
from weft_server.errors import InvalidRequest
from weft_server.openai_api.batch import all_of, check_shared, joined
from weft_server.openai_api.decoding import in_range
from weft_server.openai_api.echo import PARAMS as ECHO_PARAMS
from weft_server.openai_api.echo import Echo, check_echo, check_only_prompt
from weft_server.openai_api.echo_answers import EchoAnswers
from weft_server.openai_api.fields import REQUIRED, Field, NotTaken, RequestFields
from weft_server.openai_api.log_probs import check_num_scores
from weft_server.openai_api.model_names import selector_of
from weft_server.openai_api.priority import claim
from weft_server.openai_api.text_answers import CompletionAnswers
from weft_server.openai_api.text_requests import (
    IGNORED,
    TEXT_FIELDS,
    TEXT_REFUSED,
    check_stream,
    fill,
    method_of,
    stream,
    streams_of,
)

if TYPE_CHECKING:
    from weft_server.api.http_messages import Response
    from weft_server.openai_api.api_request import ApiRequest

PATH = "/v1/completions"
MAX_PROMPTS = 256
# Of an answer whose request gives no number, where the sum is made before the model is known.
_USUAL_TOKENS = 256
Texts = str | list[str | int | list[int]]
FIELDS = RequestFields(
    "CompletionRequest",
    (
        Field("prompt", Texts, "A text, token ids, or a list of up to 256 of either.", REQUIRED),
        *TEXT_FIELDS,
        Field("logprobs", int | None, "So many of the most probable tokens of each step, 0 to 20, and its own."),
        Field("echo", bool | None, "Whether each answer begins with its prompt. Then `max_tokens` may be 0."),
    ),
    (
        *TEXT_REFUSED,
        NotTaken("best_of", "ask for `n`, or for `num_beams`", (1,)),
        NotTaken("suffix", "models only continue", ("",)),
    ),
    IGNORED,
)
TASKS = (common_pb2.TASK_GENERATE, common_pb2.TASK_TRANSLATE)
PARAMS = {
    "text": "prompt",
    "token_ids": "prompt",
    "token_ids.ids": "prompt",
    "num_top_tokens": "logprobs",
} | ECHO_PARAMS
# Each request has an entry of it.
_LISTS = ("prompt",)
_REQUESTS: dict[str, Any] = {
    "Generate": generation_pb2.GenerateRequest,
    "Translate": translation_pb2.TranslateRequest,
}


async def completions(http: ApiRequest) -> Response:
    """Answer prompts by the call of their model's task."""
    size = len(http.body)
    asked = await aside(http.cost, partial(FIELDS.read, http.body))
    check_stream(asked)
    claim(http, asked)
    prompts = await aside(size, partial(inputs_of, asked.prompt, "prompt", MAX_PROMPTS))
    if asked.explain and len(prompts) > 1:
        raise InvalidRequest("explain", "needs one prompt: an answer has one alignment", "NOT_SUPPORTED")
    selector = selector_of(asked.model)
    method = method_of(http, selector, PATH, *TASKS)
    if asked.echo:
        check_echo(asked, method)
    kind = _REQUESTS[method]
    shared = kind()
    fill(shared, http, asked, selector, asked.logprobs)
    if asked.echo and asked.max_tokens == 0:
        check_only_prompt(shared)
    check_shared(shared, len(prompts), "prompt")
    _check_scores(asked, len(prompts))
    own = await aside(size, partial(_own, kind, prompts))
    answers = (EchoAnswers if asked.echo else CompletionAnswers)(http, asked, scored=asked.logprobs is not None)
    echo = Echo(http, asked, _USUAL_TOKENS) if asked.echo else None
    if asked.stream:
        streams = echo.stream if echo else streams_of(http, method)
        return await stream(streams, (joined(shared, each) for each in own), answers, PARAMS, _LISTS)
    ask = echo.ask if echo else partial(http.caller.unary, METHODS[method])
    return HttpResponse(200, await answers.whole(await all_of(http, ask, shared, own, PARAMS, _LISTS)))


def _own(kind: Any, prompts: list[str | list[int]]) -> list[Any]:
    """Return a request for each prompt, with nothing but the prompt."""
    own = []
    for prompt in prompts:
        request = kind()
        if isinstance(prompt, str):
            request.text = prompt
        else:
            with in_range("prompt"):
                request.token_ids.ids.extend(prompt)
        own.append(request)
    return own


def _check_scores(asked: Any, num_prompts: int) -> None:
    """Raise InvalidRequest for several prompts whose answers would have too many log-probabilities together.

    What `echo` adds is known when the prompts have been cut.
    """
    if num_prompts == 1 or asked.logprobs is None:
        return
    num_tokens = _USUAL_TOKENS if asked.max_tokens is None else asked.max_tokens
    check_num_scores(num_prompts * (asked.n or 1) * num_tokens * (1 + asked.logprobs))


def inputs_of(given: Texts, param: str, most: int) -> list[str | list[int]]:
    """Return each input of a request: a text, or token ids. Raises InvalidRequest for none, or too many."""
    if isinstance(given, str):
        return [given]
    if given and all(isinstance(each, int) for each in given):
        return [given]  # type: ignore[list-item] # integers alone are one input
    if not given:
        raise InvalidRequest(param, "must not be empty", "EMPTY_INPUT")
    if len(given) > most:
        raise InvalidRequest(param, f"must be at most {most} inputs, not {len(given)}", "INPUT_TOO_LONG")
    for index, each in enumerate(given):
        if type(each) is not type(given[0]):
            raise InvalidRequest(f"{param}[{index}]", f"is of another kind than {param}[0]", "WRONG_INPUT_KIND")
    return given  # type: ignore[return-value] # an integer among others is refused
