"""Chats with a model that answers in channels: what it says is the content, and what it thought stands beside it."""

import asyncio

import pytest

from openai_calls import Client, Scripted
from weft_proto.v1 import common_pb2, generation_pb2
from weft_server.preprocessing.channels import HARMONY, ChannelReader

CHAT = "/v1/chat/completions"
PLAIN = {"model": "m", "messages": [{"role": "user", "content": "hi"}]}
THOUGHT = "<|channel|>analysis<|message|>A < b, so <|"
FINAL = "<|end|><|start|>assistant<|channel|>final<|message|>It is <b>Paris</b> <| or <|en"
READ = {
    THOUGHT + FINAL: ("It is <b>Paris</b> <| or <|en", "A < b, so <|"),
    THOUGHT: ("", "A < b, so <|"),
    "<|channel|>final<|message|>Yes": ("Yes", ""),
    "No channel": ("No channel", ""),
    "<|channel|>commentary to=functions.f <|constrain|>json<|message|>{}": ("", "{}"),
    "<|message|>a<|start|>assistant<|message|>b": ("ab", ""),
    "<|channel|>anal": ("", ""),
    "": ("", ""),
}


def answered(text):
    """The answer to a request."""
    completion = common_pb2.Completion(
        text=text, finish_reason=common_pb2.FINISH_REASON_STOP, decoding={"num_outputs": 1}
    )
    return generation_pb2.GenerateResponse(completion=completion)


def in_pieces(text, size):
    """A text in pieces of a size."""
    return [text[at : at + size] for at in range(0, len(text), size)]


@pytest.mark.parametrize("text", READ)
@pytest.mark.parametrize("size", [1, 2, 7, 10_000])
def test_channels_are_told_apart_wherever_a_text_is_cut(text, size):
    """The beginning of a mark is held back until it is known to be none."""
    reader = ChannelReader()
    pieces = [each for piece in in_pieces(text, size) for each in reader.push(piece)] + reader.finish()
    found = tuple("".join(each.text for each in pieces if each.is_final is final) for final in (True, False))
    assert READ[text] == found
    assert all(each.text for each in pieces)


@pytest.mark.parametrize("text", READ)
def test_whole_and_streamed_they_are_the_same(text):
    """In chunks as they come, and where a text comes whole."""
    said, thought = READ[text]
    (choice,) = asyncio.run(Client(Scripted(answered(text)), call_format=HARMONY).post(CHAT, **PLAIN))["choices"]
    assert (said, thought) == (choice["message"]["content"], choice["message"].get("reasoning_content", ""))
    assert bool(thought) == ("reasoning_content" in choice["message"])
    final = generation_pb2.StreamGenerateResponse(final=answered(text))
    pieces = [generation_pb2.StreamGenerateResponse(delta={"text": each}) for each in in_pieces(text, 3)]
    for given in ([*pieces, final], [final]):
        client = Client(Scripted(*given), call_format=HARMONY)
        _, _, events = asyncio.run(client.send("POST", CHAT, PLAIN | {"stream": True}))
        deltas = [each["choices"][0]["delta"] for each in events if each != "[DONE]"]
        assert said == "".join(each.get("content", "") for each in deltas)
        assert thought == "".join(each.get("reasoning_content", "") for each in deltas)
        assert "assistant" == deltas[0]["role"]


def test_others_have_their_marks_and_calls_are_not_read():
    """A model without channels says what it says; one with them is told of functions where one is named alone."""
    (choice,) = asyncio.run(Client(Scripted(answered(THOUGHT))).post(CHAT, **PLAIN))["choices"]
    assert THOUGHT == choice["message"]["content"]
    schema = {"type": "object", "properties": {"city": {"enum": ["Paris", "Rome"]}}, "additionalProperties": False}
    named = {"type": "function", "function": {"name": "weather"}}
    tools = [{"type": "function", "function": {"name": "weather", "parameters": schema}}]
    caller = Scripted()
    status, _, answer = asyncio.run(Client(caller, call_format=HARMONY).send("POST", CHAT, PLAIN | {"tools": tools}))
    assert (400, "tool_choice", []) == (status, answer["error"]["param"], caller.asked)
    forced = Client(Scripted(answered('{"city":"Rome"}')), call_format=HARMONY)
    (choice,) = asyncio.run(forced.post(CHAT, **PLAIN, tools=tools, tool_choice=named))["choices"]
    assert '{"city":"Rome"}' == choice["message"]["tool_calls"][0]["function"]["arguments"]
