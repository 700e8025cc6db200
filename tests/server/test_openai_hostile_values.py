"""Any value in any place of a body is answered, or refused by the name of a field. Nothing else comes of it."""

import asyncio
import json
from copy import deepcopy

import pytest

from chat_bundles import with_template
from openai_calls import Client, Scripted, serving

TOOL = {"type": "function", "function": {"name": "f", "description": "d", "parameters": {"type": "object"}}}
CALL = {"id": "c", "type": "function", "function": {"name": "f", "arguments": "{}"}}
SHARED = {
    "max_tokens": 2, "min_tokens": 0, "temperature": 0.5, "top_p": 0.9, "top_k": 5, "min_p": 0.01, "seed": 3, "n": 1,
    "stop": ["x"], "stop_token_ids": [], "logit_bias": {"9": -1}, "presence_penalty": 0.1, "frequency_penalty": 0.1,
    "repetition_penalty": 1.1, "user": "u", "store": False, "response_format": {"type": "text"}, "priority": 0,
}  # fmt: skip
BODIES = {
    "/v1/chat/completions": SHARED
    | {
        "messages": [
            {"role": "system", "content": "s"},
            {"role": "user", "content": [{"type": "text", "text": "the cat"}]},
            {"role": "assistant", "tool_calls": [CALL]},
            {"role": "tool", "content": "t", "tool_call_id": "c"},
        ],
        "tools": [TOOL],
        "tool_choice": "none",
        "parallel_tool_calls": True,
        "logprobs": True,
        "top_logprobs": 2,
    },
    "/v1/completions": SHARED
    | {"prompt": ["the cat"], "logprobs": 2, "echo": True, "stream": True, "stream_options": {"include_usage": True}},
    "/tokenize": {"prompt": "the cat"},
    "/detokenize": {"tokens": [5, 6]},
}
VALUES = [
    None, True, False, 0, -1, 1, 0.5, -0.0, 2**31, 2**63, 2**70, -(2**70), 1e308, 1e-320,
    "", "x", "\0", "é漢", "NaN", "x" * 5000, [], [[]], [None], [1, "a"], [["a"] * 3], [[["a"]]],
    {}, {"": ""}, {"a": None}, {"type": "x"}, {"type": []}, {"__proto__": {}},
]  # fmt: skip
# JSON as no encoder here writes it: a number that no float holds, depth, a name twice.
ODD = [b"1e999", b"9" * 400, b"[" * 500 + b"]" * 500, b'{"a":1,"a":2}']
# No JSON, though some parsers take it.
BROKEN = [b"NaN", b"-Infinity", b"01", b'"\\ud800"', b'"\xff"', b"\x00"]
_HERE = "@here@"


def places(value, place=()):
    """Where something stands in a body."""
    yield place
    inner = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, each in inner:
        yield from places(each, (*place, key))


def changed(body, place, value):
    """The bytes of a body with another value in one place."""
    body = deepcopy(body)
    inner = body
    for key in place[:-1]:
        inner = inner[key]
    inner[place[-1]] = _HERE
    said = value if isinstance(value, bytes) else json.dumps(value).encode()
    return json.dumps(body).encode().replace(json.dumps(_HERE).encode(), said)


@pytest.fixture(scope="module")
def chatting(tiny_repository, tmp_path_factory):
    """A repository with a tiny writer that takes messages."""
    repository = tmp_path_factory.mktemp("chatting")
    template = (
        b"{% for tool in tools or [] %}{{ tool.function.name }} {% endfor %}{% for message in messages %}"
        b"{% for call in message.tool_calls or [] %}{{ call.function.name }} {% endfor %}"
        b"{{ message.content }} {% endfor %}"
    )
    (repository / "tiny-gpt").mkdir()
    with_template(tiny_repository / "tiny-gpt" / "1", repository / "tiny-gpt" / "1", template)
    return repository


@pytest.mark.parametrize("path", BODIES)
def test_any_value_is_answered_or_refused_by_a_name(chatting, path):
    """A refusal is a 400 that names a field of the body, or says that the body is no JSON."""

    async def talk():
        async with serving(chatting, "tiny-gpt") as client:
            body = {"model": "tiny-gpt"} | BODIES[path]
            status, _, answer = await client.send("POST", path, json.dumps(body).encode())
            assert 200 == status, answer
            for place in places(body):
                for value in [*VALUES, *ODD, *BROKEN] if place and place != ("model",) else ():
                    status, _, answer = await client.send("POST", path, changed(body, place, value))
                    yield place, value, status, answer[-1] if isinstance(answer, list) else answer

    async def strays():
        return [each async for each in talk() if not _is_right(BODIES[path], *each)]

    assert [] == asyncio.run(strays())


def _is_right(body, place, value, status, answer):
    if status == 200 and not (isinstance(answer, dict) and "error" in answer):
        return value not in BROKEN
    error = answer["error"]
    if error["code"] == "bad_json":
        return isinstance(value, bytes)
    name = (error["param"] or "").partition(".")[0].partition("[")[0]
    return status in {200, 400} and (name in body or error["param"] == "a")


@pytest.mark.parametrize("fields", [{"best_of": True}, {"store": 0}, {"store": 0.0}])
def test_true_is_no_number(fields):
    """What asks for nothing is that value alone: true is not 1, and 0 is not false."""
    status, param, code = asyncio.run(Client(Scripted()).refusal("/v1/completions", model="m", prompt="p", **fields))
    assert (400, next(iter(fields)), "not_supported") == (status, param, code)
