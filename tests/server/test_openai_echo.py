"""`echo`: a completion begins with its prompt, as harnesses that evaluate models ask for it."""

import asyncio

import pytest

from openai_calls import Client, Scripted, serving
from weft_proto.v1 import common_pb2, generation_pb2, score_pb2, tokenization_pb2
from weft_proto.v1.methods import METHODS

COMPLETIONS = "/v1/completions"
PROMPT, AGAIN = "Return a list of", "Open the file and"
ASK = {"model": "pydocs", "temperature": 0, "echo": True}


def served(repository, talk):
    """What somebody hears who talks to a model that continues prompts."""

    async def run():
        async with serving(repository, "pydocs") as client:
            return await talk(client)

    return asyncio.run(run())


def test_a_prompt_has_the_scores_of_score(demo_repository):
    """Of all tokens but the first, which has none. A text, its ids and a batch of both have the same."""

    async def talk(client):
        ids = (await client.post("/tokenize", model="pydocs", prompt=PROMPT))["tokens"]
        request = score_pb2.ScoreRequest(
            model={"name": "pydocs"}, token_ids={"ids": ids[:2]}, target_ids={"ids": ids[2:]}, num_top_tokens=2
        )
        typed = await client.caller.unary(METHODS["Score"], request)
        bodies = [{"prompt": PROMPT}, {"prompt": ids}, {"prompt": [AGAIN, PROMPT]}]
        whole = [await client.post(COMPLETIONS, **ASK, **each, max_tokens=0, logprobs=2) for each in bodies]
        return ids, typed, [each["choices"][-1] for each in whole], whole

    ids, typed, choices, whole = served(demo_repository, talk)
    assert [0, 0, 1] == [each["index"] for each in choices]
    assert {"prompt_tokens": len(ids), "completion_tokens": 0, "total_tokens": len(ids)} == {
        name: value for name, value in whole[0]["usage"].items() if isinstance(value, int)
    }
    for choice in choices:
        scores = choice["logprobs"]
        assert (PROMPT, "length") == (choice["text"], choice["finish_reason"])
        assert f"<start>{PROMPT}" == "".join(scores["tokens"])
        assert (None, None) == (scores["token_logprobs"][0], scores["top_logprobs"][0])
        assert [*typed.token_log_probs] == pytest.approx(scores["token_logprobs"][2:], abs=1e-4)
        assert [2] * (len(ids) - 1) == [len(each) for each in scores["top_logprobs"][1:]]
        assert scores["text_offset"] == [0, *(len("".join(scores["tokens"][1:place])) for place in range(1, len(ids)))]


def test_a_continuation_stands_behind_its_prompt(demo_repository):
    """Its text, tokens and scores are those that it has without `echo`, for each of several answers."""

    async def talk(client):
        ask = {"model": "pydocs", "prompt": [PROMPT, AGAIN], "max_tokens": 4, "logprobs": 1}
        ask |= {"n": 2, "temperature": 1.5, "seed": 7}
        plain, echoed = [await client.post(COMPLETIONS, **ask, echo=each) for each in (False, True)]
        short = await client.post(COMPLETIONS, **ask | {"logprobs": None}, echo=True)
        one = await client.post(COMPLETIONS, **ASK, prompt=[5], max_tokens=1, logprobs=1)
        return plain, echoed, short, one

    plain, echoed, short, one = served(demo_repository, talk)
    assert plain["usage"] == echoed["usage"]
    for number, (alone, behind) in enumerate(zip(plain["choices"], echoed["choices"], strict=True)):
        prompt = [PROMPT, AGAIN][number // 2]
        assert prompt + alone["text"] == behind["text"]
        size = len(alone["logprobs"]["tokens"])
        for name in ("tokens", "token_logprobs", "top_logprobs"):
            assert alone["logprobs"][name] == behind["logprobs"][name][-size:]
        assert len(prompt) == behind["logprobs"]["text_offset"][-size]
    assert [each["text"] for each in echoed["choices"]] == [each["text"] for each in short["choices"]]
    assert [None] == [each for each in one["choices"][0]["logprobs"]["token_logprobs"] if each is None]


@pytest.mark.parametrize(
    ("task", "fields", "param"),
    [
        (common_pb2.TASK_TRANSLATE, {}, "echo"),
        (common_pb2.TASK_GENERATE, {"stream": True}, "echo"),
        (common_pb2.TASK_GENERATE, {"max_tokens": 0, "n": 2}, "n"),
        (common_pb2.TASK_GENERATE, {"max_tokens": 0, "explain": True}, "explain"),
        (common_pb2.TASK_GENERATE, {"prompt": ["a" * 900] * 200, "max_tokens": 0, "logprobs": 5}, "logprobs"),
    ],
)
def test_an_echo_that_cannot_be_is_refused_by_name(task, fields, param):
    """A translation has no prompt, a stream would begin twice, nothing is explained of no answer; and its size."""
    refused = Client(Scripted(), task).refusal(COMPLETIONS, **{"model": "m", "prompt": "p", "echo": True} | fields)

    assert (400, param) == asyncio.run(refused)[:2]


def test_the_space_before_an_answers_first_word_is_there():
    """An answer alone has none, with tokenizers that put it before each word. A special token has no space."""
    spelt = {(1, True): b"cat", (1, False): b" cat", (0, True): None, (0, False): None}
    texts = []
    for text, ids in (("cat cat", [0, 1, 1]), ("", [1])):
        caller = Scripted(
            tokenization_pb2.TokenizeResponse(token_ids=[1], tokens=["cat"], model={"name": "m", "version": 3}),
            generation_pb2.GenerateResponse(completion={"text": text, "token_ids": ids, "finish_reason": 1}),
        )
        client = Client(caller, spelling_of=lambda _: lambda id_, begins: spelt[id_, begins])
        answer = asyncio.run(client.post(COMPLETIONS, model="m@canary", prompt="cat", echo=True))
        texts.append(answer["choices"][0]["text"])
        assert [0, 3] == [each.model.version for _, each in caller.asked], "the version that cut the prompt answers"
    assert ["cat cat cat", "cat"] == texts
