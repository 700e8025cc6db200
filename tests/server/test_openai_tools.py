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
        assert ("call-r1-0-0", "weather", "") == (
            first["id"],
            first["function"]["name"],
            first["function"]["arguments"],
        )
        assert '{"city":"Rome"}' == "".join(each["function"]["arguments"] for each in pieces)
        assert {0} == {each["index"] for each in (first, *pieces)}
        assert "stop" == chunks[-1]["finish_reason"]


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({}, "tool_choice"),
        ({"tool_choice": "auto"}, "tool_choice"),
        ({"tool_choice": "any"}, "tool_choice"),
        ({"tool_choice": chosen("time")}, "tool_choice"),
        ({"tools": None, "tool_choice": "required"}, "tool_choice"),
        ({"tools": [tool(), tool("time")], "tool_choice": "required"}, "tool_choice"),
        ({"tools": [tool(), tool()], "tool_choice": chosen()}, "tool_choice"),
        ({"tools": [tool()] * 129, "tool_choice": chosen()}, "tools"),
        ({"tool_choice": chosen(), "regex": "a"}, "tool_choice"),
        ({"tool_choice": chosen(), "stop": "}"}, "stop"),
        ({"tool_choice": "required", "stop": ["}"]}, "stop"),
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
    """Nor is what a model calls by itself, where it is not known how it writes that."""
    caller = Scripted()
    status, _, answer = asyncio.run(Client(caller).send("POST", CHAT, ASK | fields))

    assert (400, param, []) == (status, answer["error"]["param"], caller.asked)


HERMES = '<tool_call>{"name": "weather", "arguments": {"city":"Rome"}}</tool_call>'
AUTO = [{}, {"tool_choice": "auto"}]


@pytest.mark.parametrize("fields", AUTO)
def test_a_model_that_is_told_of_functions_may_call_them(fields):
    """Each choice has its own text and calls. Who is cut off has not ended with calls."""
    caller = Scripted(answered(f"So:\n{HERMES}\n{HERMES}", "No.", HERMES))
    client = Client(caller, call_format="hermes")
    answer = asyncio.run(client.post(CHAT, **ASK | fields, n=3, temperature=1))

    ((_, request),) = caller.asked
    (told,) = request.messages.functions
    assert ("weather", "Tells it.", SCHEMA) == (told.name, told.description, msgspec.json.decode(told.parameters))
    assert not request.decoding.HasField("constraint")
    assert ["tool_calls", "stop", "tool_calls"] == [each["finish_reason"] for each in answer["choices"]]
    messages = [each["message"] for each in answer["choices"]]
    assert ["So:", "No.", None] == [each["content"] for each in messages]
    assert [2, 0, 1] == [len(each.get("tool_calls", [])) for each in messages]
    calls = [call for each in messages for call in each.get("tool_calls", [])]
    assert {("weather", '{"city":"Rome"}')} == {tuple(call["function"].values()) for call in calls}
    assert 3 == len({call["id"] for call in calls})
    cut = asyncio.run(
        Client(Scripted(answered(HERMES, reason=common_pb2.FINISH_REASON_LENGTH)), call_format="hermes").post(
            CHAT, **ASK
        )
    )
    assert "length" == cut["choices"][0]["finish_reason"]


@pytest.mark.parametrize(("text", "finish"), [(HERMES, "tool_calls"), (HERMES[: HERMES.index("ome")], "stop")])
def test_a_stop_string_within_a_call_leaves_no_call_to_make(text, finish):
    """Whole and streamed. One behind the call does."""
    final = answered(text, reason=common_pb2.FINISH_REASON_STOP_STRING)
    whole = asyncio.run(Client(Scripted(final), call_format="hermes").post(CHAT, **ASK))
    events = [generation_pb2.StreamGenerateResponse(delta={"text": text})]
    events.append(generation_pb2.StreamGenerateResponse(final=final))
    streaming = Client(Scripted(*events), call_format="hermes").send("POST", CHAT, ASK | {"stream": True})
    _, _, (*_, last, _) = asyncio.run(streaming)

    assert 1 == len(whole["choices"][0]["message"]["tool_calls"])
    assert [finish] * 2 == [each["choices"][0]["finish_reason"] for each in (whole, last)]


@pytest.mark.parametrize("fields", AUTO)
def test_a_model_that_is_not_there_is_told_by_its_call(fields):
    """How it writes calls is not known, and is no reason to refuse the choice: the call says what is missing."""
    caller = Scripted(answered("No."))
    asyncio.run(Client(caller, call_format=None).post(CHAT, **ASK | fields))
    assert 1 == len(caller.asked)


@pytest.mark.parametrize("size", [1, 7, 1000])
@pytest.mark.parametrize(
    "text", [f"So:\n{HERMES}\n{HERMES}", f"{HERMES} And so.", HERMES, HERMES[:-20], "No <tool_", "No.", ""]
)
def test_a_stream_of_calls_joins_to_the_whole_answer(text, size):
    """Of a call come its index, id and name, then its arguments as they are written. What is no call comes as text."""
    deltas = [text[at : at + size] for at in range(0, len(text), size)]
    events = [generation_pb2.StreamGenerateResponse(delta={"text": each}) for each in deltas]
    final = generation_pb2.StreamGenerateResponse(final=answered(text))
    whole = asyncio.run(Client(Scripted(answered(text)), call_format="hermes").post(CHAT, **ASK))
    for given in ([*events, final], [final]):
        client = Client(Scripted(*given), call_format="hermes")
        _, _, (*chunks, done) = asyncio.run(client.send("POST", CHAT, ASK | {"stream": True}))
        choices = [each["choices"][0] for each in chunks]
        first, *rest = [each["delta"] for each in choices]
        calls = joined([call for each in rest for call in each.get("tool_calls", [])])
        content = "".join(each.get("content", "") for each in rest)
        assert ("assistant", "", "[DONE]") == (first["role"], first["content"], done)
        (choice,) = whole["choices"]
        assert (choice["message"]["content"] or "", choice["message"].get("tool_calls", [])) == (content, calls)
        assert choice["finish_reason"] == choices[-1]["finish_reason"]


def joined(deltas):
    """The calls that the deltas of a stream make, as clients join them: by their index, which goes up by one."""
    calls = []
    for each in deltas:
        if "id" in each:
            assert len(calls) == each.pop("index")
            calls.append(each)
        else:
            assert {"index": len(calls) - 1} == {key: each[key] for key in each if key != "function"}
            calls[-1]["function"]["arguments"] += each["function"]["arguments"]
    return calls


def test_the_arguments_of_a_call_come_as_they_are_written():
    """Nobody waits for the end of a call to see how it begins, nor for the answer's end to see what is behind it."""
    texts = ['<tool_call>{"name": "weather", ', '"arguments": {"ci', 'ty":"Rome', '"}}</tool_call>', " And", " so."]
    events = [generation_pb2.StreamGenerateResponse(delta={"text": each}) for each in texts]
    final = generation_pb2.StreamGenerateResponse(final=answered("".join(texts)))
    client = Client(Scripted(*events, final), call_format="hermes")
    _, _, (_, *chunks, _) = asyncio.run(client.send("POST", CHAT, ASK | {"stream": True}))
    deltas = [each["choices"][0]["delta"] for each in chunks]
    functions = [each["tool_calls"][0]["function"] for each in deltas[:4]]

    assert [
        {"name": "weather", "arguments": ""},
        *({"arguments": each} for each in ('{"ci', 'ty":"Rome', '"}')),
    ] == functions
    assert ["And", " so.", None] == [each.get("content") for each in deltas[4:]]


@pytest.mark.parametrize("call_format", ["", "hermes"])
def test_with_the_choice_none_a_model_is_told_of_nothing(call_format):
    """Its answer is text, whatever it looks like."""
    caller = Scripted(answered(HERMES))
    answer = asyncio.run(Client(caller, call_format=call_format).post(CHAT, **ASK, tool_choice="none"))

    (choice,) = answer["choices"]
    assert (HERMES, "stop") == (choice["message"]["content"], choice["finish_reason"])
    assert 0 == len(caller.asked[0][1].messages.functions)


def test_a_call_that_is_forced_is_told_too():
    """Where a template tells of functions. The arguments are a constraint all the same."""
    caller = Scripted(answered('{"city":"Rome"}'))
    client = Client(caller, call_format="hermes")
    answer = asyncio.run(client.post(CHAT, **ASK | {"tools": [tool(), tool("now")]}, tool_choice=chosen()))

    ((_, request),) = caller.asked
    assert ["weather", "now"] == [each.name for each in request.messages.functions]
    assert request.decoding.constraint.json_schema
    assert "weather" == answer["choices"][0]["message"]["tool_calls"][0]["function"]["name"]


def test_calls_and_results_go_back_as_messages():
    """As the SDK gives an answer, and as a caller tells what a function gave."""
    caller = Scripted(answered(HERMES), answered("It rains."))
    client = Client(caller, call_format="hermes")
    (choice,) = asyncio.run(client.post(CHAT, **ASK))["choices"]
    (call,) = choice["message"]["tool_calls"]
    told = {"role": "tool", "tool_call_id": call["id"], "content": "rain"}
    asyncio.run(client.post(CHAT, **ASK | {"messages": [*ASK["messages"], choice["message"], told]}))

    _, asked, result = caller.asked[1][1].messages.turns
    assert ("assistant", "") == (asked.role, asked.content)
    assert [(call["id"], "weather", '{"city":"Rome"}')] == [(c.id, c.name, c.arguments) for c in asked.calls]
    assert ("tool", "rain", call["id"]) == (result.role, result.content, result.call_id)


CALL = {"id": "c", "type": "function", "function": {"name": "f", "arguments": "{}"}}


@pytest.mark.parametrize(
    ("message", "param"),
    [
        ({"role": "assistant"}, "content"),
        ({"role": "assistant", "content": None, "tool_calls": []}, "content"),
        ({"role": "user", "content": "a", "tool_calls": [CALL]}, "tool_calls"),
        ({"role": "tool", "content": "a"}, "tool_call_id"),
        ({"role": "user", "content": "a", "tool_call_id": "c"}, "tool_call_id"),
    ],
)
def test_a_message_has_what_its_role_has(message, param):
    """A result names its call, and only an answer has calls."""
    refused = Client(Scripted()).refusal(CHAT, model="m", messages=[message])

    assert (400, f"messages[0].{param}") == asyncio.run(refused)[:2]


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
