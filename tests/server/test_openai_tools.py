"""A chat that must call a function: its arguments fit the function's schema, whole and streamed.

tests/e2e/test_openai.py asks a real model.
"""

import asyncio

import msgspec
import pytest

from openai_calls import Client, Scripted
from weft_proto.v1 import common_pb2, generation_pb2
from weft_server.errors import InvalidRequest

CHAT = "/v1/chat/completions"
SCHEMA = {
    "type": "object",
    "properties": {"city": {"enum": ["Paris", "Rome"]}},
    "required": ["city"],
    "additionalProperties": False,
}


def tool(name="weather", **more):
    """A function whose argument is a city."""
    return {"type": "function", "function": {"name": name, "description": "Tells it.", "parameters": SCHEMA} | more}


def chosen(name="weather"):
    """The choice of a function."""
    return {"type": "function", "function": {"name": name}}


ASK = {"model": "m", "messages": [{"role": "user", "content": "hi"}], "tools": [tool()]}


def answered(*texts, reason=common_pb2.FINISH_REASON_STOP):
    """The answers to one request."""
    outputs = [{"text": each, "finish_reason": reason} for each in texts]
    completion = common_pb2.Completion(**outputs[0], others=outputs[1:], decoding={"num_outputs": len(texts)})
    return generation_pb2.GenerateResponse(completion=completion)


@pytest.mark.parametrize(
    ("choice", "reason", "finish"),
    [
        (chosen(), common_pb2.FINISH_REASON_STOP, "stop"),
        ("required", common_pb2.FINISH_REASON_STOP, "tool_calls"),
        ("required", common_pb2.FINISH_REASON_LENGTH, "length"),
    ],
)
def test_an_answer_is_the_call_that_the_request_forces(choice, reason, finish):
    """The schema constrains the answer, as it stands. The text of each choice is the arguments of a call of its own."""
    caller = Scripted(answered('{"city":"Rome"}', '{"city":"Paris"}', reason=reason))
    answer = asyncio.run(Client(caller).post(CHAT, **ASK, tool_choice=choice, n=2, temperature=1))

    ((_, request),) = caller.asked
    assert msgspec.json.encode(SCHEMA).decode() == request.decoding.constraint.json_schema
    for each, arguments in zip(answer["choices"], ('{"city":"Rome"}', '{"city":"Paris"}'), strict=True):
        (call,) = each["message"]["tool_calls"]
        assert (finish, None) == (each["finish_reason"], each["message"]["content"])
        assert {"name": "weather", "arguments": arguments} == call["function"]
    assert 2 == len({each["message"]["tool_calls"][0]["id"] for each in answer["choices"]})


def test_the_arguments_stream():
    """The first chunk has the call's id and name, and the others pieces of the arguments."""
    deltas = [generation_pb2.StreamGenerateResponse(delta={"text": each}) for each in ('{"city":', '"Rome"}')]
    final = generation_pb2.StreamGenerateResponse(final=answered('{"city":"Rome"}'))
    for given in ([*deltas, final], [final]):
        body = ASK | {"tool_choice": chosen(), "stream": True}
        _, _, events = asyncio.run(Client(Scripted(*given)).send("POST", CHAT, body))
        chunks = [each["choices"][0] for each in events if each != "[DONE]"]
        first, *pieces = [each["delta"]["tool_calls"][0] for each in chunks if each["delta"]]
        assert ("call-r1-0", "weather", "") == (first["id"], first["function"]["name"], first["function"]["arguments"])
        assert '{"city":"Rome"}' == "".join(each["function"]["arguments"] for each in pieces)
        assert {0} == {each["index"] for each in (first, *pieces)}
        assert "stop" == chunks[-1]["finish_reason"]


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({}, "tool_choice"),
        ({"tool_choice": "auto"}, "tool_choice"),
        ({"tool_choice": "none"}, "tool_choice"),
        ({"tool_choice": "any"}, "tool_choice"),
        ({"tool_choice": chosen("time")}, "tool_choice"),
        ({"tools": None, "tool_choice": "required"}, "tool_choice"),
        ({"tools": [tool(), tool("time")], "tool_choice": "required"}, "tool_choice"),
        ({"tools": [tool(), tool()], "tool_choice": chosen()}, "tool_choice"),
        ({"tools": [tool()] * 129, "tool_choice": chosen()}, "tools"),
        ({"tool_choice": chosen(), "regex": "a"}, "tool_choice"),
        ({"tool_choice": chosen(), "response_format": {"type": "json_object"}}, "tool_choice"),
        ({"tools": [tool("a b")], "tool_choice": "required"}, "tools[0].function.name"),
        ({"tools": [tool(parameters={"type": "array"})], "tool_choice": "required"}, "tools[0].function.parameters"),
        ({"tools": [tool(parameters=[])], "tool_choice": "required"}, "tools[0].function.parameters"),
        (
            {"tools": [tool(parameters=SCHEMA | {"title": "x" * 70_000})], "tool_choice": "required"},
            "tools[0].function.parameters",
        ),
    ],
)
def test_a_choice_that_cannot_be_followed_is_refused_by_name(fields, param):
    """Whether a model calls, and which function, is read out of no answer."""
    caller = Scripted()
    status, _, answer = asyncio.run(Client(caller).send("POST", CHAT, ASK | fields))

    assert (400, param, []) == (status, answer["error"]["param"], caller.asked)


@pytest.mark.parametrize("number", [b"1e999", b"1" * 5000])
def test_a_number_that_no_schema_has_is_refused_by_name(number):
    """It is the caller's mistake, and no bug of ours."""
    fields = {"tools": [tool(parameters=SCHEMA | {"minItems": 1234567})], "tool_choice": "required"}
    body = msgspec.json.encode(ASK | fields).replace(b"1234567", number)
    status, _, answer = asyncio.run(Client(Scripted()).send("POST", CHAT, body))

    assert (400, "tools[0].function.parameters") == (status, answer["error"]["param"])


def test_a_function_without_parameters_takes_any_object():
    """So it does with an empty schema."""
    for given in ({}, {"parameters": None}, {"parameters": {}}):
        caller = Scripted(answered("{}"))
        ask = ASK | {"tools": [{"type": "function", "function": {"name": "now"} | given}]}
        asyncio.run(Client(caller).post(CHAT, **ask, tool_choice="required"))
        assert '{"type": "object"}' == caller.asked[0][1].decoding.constraint.json_schema


@pytest.mark.parametrize("stream", [False, True])
def test_a_schema_that_is_not_followed_is_that_of_the_tools(stream):
    """The caller has sent no response_format."""
    caller = Scripted(InvalidRequest("decoding.constraint.json_schema", "has no end", "CONSTRAINT_REFUSED"))
    body = ASK | {"tool_choice": chosen(), "stream": stream}
    status, _, answer = asyncio.run(Client(caller).send("POST", CHAT, body))

    assert (400, "tools", "tools has no end") == (status, answer["error"]["param"], answer["error"]["message"])
