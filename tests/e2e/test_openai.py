"""The `openai` client against a real server: what it asks for, what it is told, and how often it tries again."""

import asyncio
import base64
import json
from dataclasses import replace
from pathlib import Path

import openai
import pytest

import weft
from chat_bundles import with_template
from held import Held

pytestmark = pytest.mark.e2e
EXAMPLES = Path(__file__).parents[2] / "export/checkpoints"
PROMPT = "Return a list of"
# An answer that does not end while a test holds it.
LONG = {"max_tokens": 60, "extra_body": {"min_tokens": 60}}
TELLS_OF_FUNCTIONS = b"""
{%- for tool in tools or [] %}<tool_call>{{ tool.function.name }}{% endfor %}
{%- for message in messages %}
{%- for call in message.tool_calls or [] %}{{ call.function.name }}{% endfor %}{{ message.content }}{% endfor %}"""


@pytest.fixture(scope="module")
def server(demo_repository, tmp_path_factory):
    """One server whose steps a test can hold."""
    repository = tmp_path_factory.mktemp("models")
    for model in demo_repository.iterdir():
        (repository / model.name).symlink_to(model)
    # One that takes messages.
    with_template(demo_repository / "pydocs" / "1", repository / "chat" / "1", b"{{ messages[0].content }}")
    with_template(demo_repository / "pydocs" / "1", repository / "caller" / "1", TELLS_OF_FUNCTIONS)
    with Held(repository, tmp_path_factory.mktemp("points"), api_port=0, max_restarts=100) as server:
        server.wait_for("ready")
        yield server


def opened(server, **more):
    """OpenAI's own client of that server."""
    return openai.OpenAI(base_url=f"http://{server.wait_for('listening')['api']}/v1", api_key="none", **more)


@pytest.fixture
def client(server):
    """A client that tries nothing again."""
    with opened(server, max_retries=0) as client:
        yield client


@pytest.fixture
def typed(server):
    """The SDK, by gRPC."""
    with weft.Client(server.target, timeout=60) as client:
        yield client


def test_models_are_listed_and_found(client):
    """By the names that requests give."""
    names = [each.id for each in client.models.list()]

    assert {"pydocs", "en-es", "scenes"} <= set(names)
    assert ["pydocs", "pydocs@1"] == [client.models.retrieve(each).id for each in ("pydocs", "pydocs@1")]
    with pytest.raises(openai.NotFoundError, match="there is no model 'nope'"):
        client.models.retrieve("nope")


def test_text_is_that_of_grpc(client, typed):
    """A completion by HTTP has the bits of the same call by gRPC, whole, drawn and streamed."""
    draws = {"model": "pydocs", "prompt": PROMPT, "temperature": 1.5, "seed": 7, "max_tokens": 12}
    whole = client.completions.create(**draws, logprobs=1, extra_body={"top_k": 20})
    same = typed.generate(
        PROMPT,
        model="pydocs",
        return_scores=True,
        decoding=weft.Decoding(max_new_tokens=12, strategy=weft.Sampling(temperature=1.5, seed=7, top_k=20)),
    )
    assert (same.text, list(same.token_log_probs)) == (whole.choices[0].text, whole.choices[0].logprobs.token_logprobs)
    assert same.usage.output_tokens == whole.usage.completion_tokens
    with client.completions.create(**draws, extra_body={"top_k": 20}, stream=True) as stream:
        assert same.text == "".join(each.choices[0].text for each in stream)


def test_a_chat_about_a_picture(client, typed):
    """The picture travels as a data URI. Its caption streams, and usage comes last."""
    picture = next(iter(sorted((EXAMPLES / "scenes/examples").glob("*.png")))).read_bytes()
    url = "data:image/png;base64," + base64.b64encode(picture).decode()
    message = {"role": "user", "content": [{"type": "image_url", "image_url": {"url": url}}]}
    ask = {"model": "scenes", "messages": [message]}
    chat = client.chat.completions.create(**ask, logprobs=True, top_logprobs=2)
    caption = typed.caption(picture)

    assert (caption.text, "stop") == (chat.choices[0].message.content, chat.choices[0].finish_reason)
    assert all(2 == len(each.top_logprobs) for each in chat.choices[0].logprobs.content)
    chunks = list(client.chat.completions.create(**ask, stream=True, stream_options={"include_usage": True}))
    assert caption.text == "".join(each.choices[0].delta.content or "" for each in chunks[:-1])
    assert (caption.usage.input_tokens, []) == (chunks[-1].usage.prompt_tokens, chunks[-1].choices)
    again = client.chat.completions.with_raw_response.create(**ask, extra_headers={"x-request-id": "mine"})
    assert ("mine", "chatcmpl-mine") == (again.headers["x-request-id"], again.parse().id)


def test_a_recording_is_transcribed(client, typed):
    """As a form, with words and their times, and as subtitles."""
    path = EXAMPLES / "commands/examples/eighty-eight-fifty-five.wav"
    heard = client.audio.transcriptions.create(
        file=path, model="commands", response_format="verbose_json", timestamp_granularities=["word", "segment"]
    )
    same = typed.transcribe(path, timestamps=True, explain=True)

    assert ("eighty eight fifty five", same.text) == (heard.text, heard.text)
    assert [each.text for each in same.words] == [each.word for each in heard.words]
    assert [round(each.start_s, 3) for each in same.segments] == [each.start for each in heard.segments]
    said = client.audio.transcriptions.create(file=path, model="commands", response_format="srt")
    assert said.startswith("1\n00:00:00,")
    stream = client.audio.transcriptions.create(file=path, model="commands", stream=True)
    assert heard.text == list(stream)[-1].text


def test_a_function_is_called(client):
    """The client reads the call that a request forces, whole and of the pieces of a stream."""
    cities = {"city": {"enum": ["Paris", "Rome"]}}
    schema = {"type": "object", "properties": cities, "required": ["city"], "additionalProperties": False}
    ask = {
        "model": "chat",
        "messages": [{"role": "user", "content": PROMPT}],
        "tools": [{"type": "function", "function": {"name": "weather", "parameters": schema}}],
        "tool_choice": {"type": "function", "function": {"name": "weather"}},
        "frequency_penalty": 2,
        "max_tokens": 200,
    }
    (call,) = client.chat.completions.create(**ask).choices[0].message.tool_calls
    assert ("function", "weather") == (call.type, call.function.name)
    assert json.loads(call.function.arguments)["city"] in {"Paris", "Rome"}
    with client.chat.completions.stream(**ask) as stream:
        (streamed,) = stream.get_final_completion().choices[0].message.tool_calls
    assert ("weather", call.function.arguments) == (streamed.function.name, streamed.function.arguments)
    with pytest.raises(openai.BadRequestError, match="tool_choice"):
        client.chat.completions.create(**ask | {"tool_choice": "auto"})


def test_a_function_is_called_by_the_model(client):
    """The client reads calls among text, and gives them back as a message. Here the model can write nothing else."""
    call = '<tool_call>{"name": "weather", "arguments": {"city": "Rome"}}</tool_call>'
    messages = [{"role": "user", "content": PROMPT}]
    tools = [{"type": "function", "function": {"name": "weather"}}]
    only = {"max_tokens": 200, "extra_body": {"choice": [f"So:\n{call}\n{call}"]}}
    choice = client.chat.completions.create(model="caller", messages=messages, tools=tools, **only).choices[0]
    assert ("So:", "tool_calls") == (choice.message.content, choice.finish_reason)
    calls = choice.message.tool_calls
    assert [("weather", '{"city": "Rome"}')] * 2 == [(each.function.name, each.function.arguments) for each in calls]
    with client.chat.completions.stream(model="caller", messages=messages, tools=tools, **only) as stream:
        streamed = stream.get_final_completion().choices[0]
    told = [(each.function.name, each.function.arguments) for each in streamed.message.tool_calls]
    assert ("So:", "tool_calls", told) == (streamed.message.content, streamed.finish_reason, 2 * told[:1])
    messages += [choice.message.model_dump(), {"role": "tool", "tool_call_id": calls[0].id, "content": "rain"}]
    again = client.chat.completions.create(model="caller", messages=messages, tools=tools, max_tokens=4)
    assert again.choices[0].message.tool_calls is None
    plain = client.chat.completions.create(
        model="caller", messages=messages, tools=tools, tool_choice="none", **only
    ).choices[0]
    assert (f"So:\n{call}\n{call}", "stop") == (plain.message.content, plain.finish_reason)


def test_the_sdk_has_the_calls_that_openais_client_has(server, client, typed):
    """By gRPC as by HTTP: whole and streamed, of each answer, blocking and in asyncio; and they go back as messages."""
    call = '<tool_call>{"name": "weather", "arguments": {"city": "Rome"}}</tool_call>'
    decoding = weft.Decoding(max_new_tokens=200, choices=(f"So:\n{call}\n{call}",))
    ask = {
        "messages": [{"role": "user", "content": PROMPT}],
        "functions": [weft.Function("weather")],
        "model": "caller",
    }
    answer = typed.generate(**ask, decoding=decoding, request_id="r")
    assert (f"So:\n{call}\n{call}", "hermes") == (answer.text, typed.get_model("caller").call_format)
    rome = [weft.FunctionCall(f"call-r-0-{number}", "weather", '{"city": "Rome"}') for number in (0, 1)]
    assert rome == list(answer.calls)
    with typed.stream_generate(**ask, decoding=decoding, request_id="r") as stream:
        assert answer.text == "".join(stream)
    assert answer.calls == stream.result.calls
    several = typed.generate(**ask, decoding=replace(decoding, strategy=weft.Sampling(seed=1), num_outputs=2))
    assert [2, 2] == [len(each.calls) for each in (several, *several.others)]

    async def asked():
        async with weft.AsyncClient(server.target) as asynchronous:
            return await asynchronous.generate(**ask, decoding=decoding, request_id="r")

    assert answer.calls == asyncio.run(asked()).calls
    by_http = client.chat.completions.create(
        model="caller",
        messages=ask["messages"],
        tools=[{"type": "function", "function": {"name": "weather"}}],
        max_tokens=200,
        extra_body={"choice": [answer.text]},
    )
    theirs = [(each.function.name, each.function.arguments) for each in by_http.choices[0].message.tool_calls]
    assert theirs == [(each.name, each.arguments) for each in answer.calls]
    untold = typed.generate(messages=ask["messages"], model="caller", decoding=decoding)
    assert (answer.text, ()) == (untold.text, untold.calls)
    back = [
        *ask["messages"],
        {"role": "assistant", "content": "So:", "calls": answer.calls},
        {"role": "tool", "content": "rain", "call_id": answer.calls[0].id},
    ]
    assert typed.generate(**ask | {"messages": back}, decoding=weft.Decoding(max_new_tokens=2)).usage.output_tokens


def test_an_error_is_typed(client):
    """The client raises the class of the status, with the field's name and a code."""
    with pytest.raises(openai.BadRequestError) as refused:
        client.completions.create(model="pydocs", prompt=PROMPT, temperature=11)
    assert ("temperature", "invalid_field", "invalid_request_error") == (
        refused.value.param, refused.value.code, refused.value.type,
    )  # fmt: skip
    assert refused.value.request_id
    with pytest.raises(openai.BadRequestError) as refused:
        client.completions.create(
            model="pydocs", prompt=PROMPT, max_tokens=0, stream=True, extra_headers={"x-request-id": "mine"}
        )
    assert ("max_tokens", "mine") == (refused.value.param, refused.value.request_id)
    with pytest.raises(openai.NotFoundError) as refused:
        client.post("/chat/completion", body={}, cast_to=object)
    assert "method_not_found" == refused.value.code


def test_a_step_that_fails_ends_a_stream_with_an_error(server, client):
    """A client that has half an answer is told that the rest will not come. It does not take it for the whole."""
    server.say("pydocs.decode", "hold 3")
    stream = client.completions.create(model="pydocs", prompt=PROMPT, stream=True, **LONG)
    first = next(stream)
    server.wait_until(lambda: server.is_held("pydocs.decode"), what="a step")
    server.say("pydocs.decode", "raise")
    assert first.choices[0].text
    with pytest.raises(openai.APIError) as failed:
        list(stream)
    assert "step_failed" == failed.value.code


def test_a_client_that_goes_frees_its_slot(server, client):
    """In the middle of a stream, nothing is decoded for nobody."""
    server.say("pydocs.decode", "hold 3")
    stream = client.completions.create(model="pydocs", prompt=PROMPT, stream=True, **LONG)
    next(stream)
    server.wait_until(lambda: server.is_held("pydocs.decode"), what="a step")
    stream.close()
    server.free("pydocs.decode")
    server.wait_until(lambda: 0 == server.metric("weft_decode_slots_used"), what="an empty engine")
    server.wait_until(lambda: server.metric("weft_requests_total", code="CANCELLED") >= 1, what="a cancelled call")


def test_what_is_wrong_is_not_sent_again(server):
    """A step that failed may fail because of the request: the client is told not to try again, and does not."""
    with opened(server, max_retries=2) as client:
        before = server.metric("weft_requests_total")
        server.say("pydocs.decode", "raise")
        with pytest.raises(openai.InternalServerError):
            client.completions.create(model="pydocs", prompt=PROMPT)
        assert before + 1 == server.metric("weft_requests_total")
