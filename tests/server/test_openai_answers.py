"""What OpenAI's clients are answered is what the same call by weft.v1 is answered, in their shapes."""

import asyncio
import base64
import json
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from chat_bundles import with_template
from http_calls import ask, asked, served
from openai_calls import Client, Scripted, form, serving
from weft_proto.v1 import (
    caption_pb2,
    classification_pb2,
    common_pb2,
    embedding_pb2,
    generation_pb2,
    model_pb2,
    transcription_pb2,
    translation_pb2,
)
from weft_proto.v1.methods import METHODS
from weft_server.models.registry import ModelRegistry
from weft_server.openai_api.log_probs import chat_log_probs, completion_log_probs
from weft_server.openai_api.routes import openai_routes, refuse_path
from weft_server.openai_api.subtitles import srt, vtt

EXAMPLES = Path(__file__).parents[2] / "export/checkpoints"
CHAT, COMPLETIONS = "/v1/chat/completions", "/v1/completions"
PROMPT = "Return a list of"
DRAWS = {"temperature": 1.5, "seed": 7, "top_k": 20, "max_tokens": 12}
TYPED_DRAWS = {"max_new_tokens": 12, "sampling": {"temperature": 1.5, "seed": 7, "top_k": 20}}


def run(repository, names, talk):
    """Serve some models, and return what somebody hears who talks to them."""

    async def served():
        async with serving(repository, *names) as client:
            return await talk(client)

    return asyncio.run(served())


def texts(events):
    """The text of each choice of a stream, joined, and why each ended."""
    joined, ends = {}, {}
    for each in events:
        for choice in [] if isinstance(each, str | bytes) else each["choices"]:
            text = choice["delta"].get("content", "") if "delta" in choice else choice["text"]
            joined[choice["index"]] = joined.get(choice["index"], "") + text
            if choice["finish_reason"]:
                ends[choice["index"]] = choice["finish_reason"]
    return joined, ends


def test_a_completion_is_that_of_generate(demo_repository):
    """Text, tokens, scores, usage and end are those of the typed call, with the same seed. So is a stream."""

    async def talk(client):
        typed = await client.caller.unary(METHODS["Generate"],
            generation_pb2.GenerateRequest(
                text=PROMPT, decoding=TYPED_DRAWS, return_scores=True, num_top_tokens=2,
                model={"name": "pydocs"}, explain={},
            ),
        )  # fmt: skip
        body = {"model": "pydocs@1", "prompt": PROMPT, **DRAWS, "logprobs": 2, "explain": True}
        whole = await client.post(COMPLETIONS, **body)
        events = await client.post(COMPLETIONS, **body, stream=True, stream_options={"include_usage": True})
        return typed, whole, events

    typed, whole, events = run(demo_repository, ["pydocs"], talk)
    said, (choice,) = typed.completion, whole["choices"]
    assert ("cmpl-r1", "text_completion", "pydocs@1") == (whole["id"], whole["object"], whole["system_fingerprint"])
    assert (said.text, "length") == (choice["text"], choice["finish_reason"])
    log_probs = choice["logprobs"]
    assert list(said.token_log_probs) == log_probs["token_logprobs"]
    assert said.text == "".join(log_probs["tokens"])
    assert said.text[log_probs["text_offset"][3] :] == "".join(log_probs["tokens"][3:])
    assert [list(each.log_probs) for each in said.top_tokens] == [
        [*each.values()] for each in log_probs["top_logprobs"]
    ]
    usage = said.usage.input_tokens, said.usage.output_tokens
    assert (*usage, sum(usage)) == tuple(whole["usage"].values())[:3]
    assert list(typed.alignment.source_tokens) == whole["alignment"]["source_tokens"]
    assert ({0: said.text}, {0: "length"}) == texts(events)
    # A reader that comes late is given several tokens at once, and perhaps all.
    assert len(events) > 3
    *pieces, end, last, done = events
    assert [None] * len(pieces) == [each["usage"] for each in pieces]
    assert (log_probs, whole["alignment"]) == (end["choices"][0]["logprobs"], end["alignment"])
    assert ([], whole["usage"], "[DONE]") == (last["choices"], last["usage"], done)


def test_several_prompts_and_several_answers(demo_repository):
    """Choices stand prompt by prompt, each as it is alone, and so do those of a stream. Its usage is their sum."""

    async def talk(client):
        asked = {"model": "pydocs", "n": 2, **DRAWS}
        prompts = [PROMPT, "Open the file"]
        many = await client.post(COMPLETIONS, **asked, prompt=prompts)
        alone = [await client.post(COMPLETIONS, **asked, prompt=each) for each in prompts]
        usage = {"stream": True, "stream_options": {"include_usage": True}}
        events = await client.post(COMPLETIONS, **asked, prompt=prompts, **usage)
        pieces = await client.post(COMPLETIONS, **asked | {"n": 1}, prompt=prompts, **usage)
        refused = await client.refusal(COMPLETIONS, model="pydocs", prompt=[PROMPT, ""])
        explained = await client.refusal(COMPLETIONS, model="pydocs", prompt=prompts, explain=True)
        return many, alone, events, pieces, refused, explained

    many, alone, events, pieces, refused, explained = run(demo_repository, ["pydocs"], talk)
    expected = [choice["text"] for each in alone for choice in each["choices"]]
    assert expected == [each["text"] for each in many["choices"]]
    assert [0, 1, 2, 3] == [each["index"] for each in many["choices"]]
    assert 4 == len(set(expected))
    assert sum(each["usage"]["total_tokens"] for each in alone) == many["usage"]["total_tokens"]
    assert dict(enumerate(expected)) == texts(events)[0]
    assert {0: expected[0], 1: expected[2]} == texts(pieces)[0]
    for stream in (events, pieces):
        assert ([], "[DONE]") == (stream[-2]["choices"], stream[-1])
    assert many["usage"] == events[-2]["usage"]
    assert (400, "prompt[1]", "empty_input") == refused
    # An alignment stands beside the choices, so it would be that of one prompt.
    assert (400, "explain", "not_supported") == explained


def test_a_constraint_and_a_stop_hold(demo_repository):
    """An answer fits what it was asked to fit, and ends before a stop string, which is a stop."""

    async def talk(client):
        ask = {"model": "pydocs", "prompt": PROMPT, "max_tokens": 40}
        chosen = await client.post(COMPLETIONS, **ask, choice=["tomatoes", "potatoes"])
        stopped = await client.post(COMPLETIONS, **ask, stop=["s"])
        return chosen["choices"][0], stopped["choices"][0]

    chosen, stopped = run(demo_repository, ["pydocs"], talk)
    assert chosen["text"] in {"tomatoes", "potatoes"}
    assert "stop" == stopped["finish_reason"]
    assert "s" not in stopped["text"]


def test_chats_of_models_that_see_and_translate(demo_repository):
    """A picture's caption and a text's translation are those of the typed calls, whole and streamed."""
    picture = next(iter(sorted((EXAMPLES / "scenes/examples").glob("*.png")))).read_bytes()
    url = "data:image/png;base64," + base64.b64encode(picture).decode()

    async def talk(client):
        typed = [
            await client.caller.unary(
                METHODS["Caption"], caption_pb2.CaptionRequest(image={"data": picture}, return_scores=True)
            ),
            await client.caller.unary(
                METHODS["Translate"], translation_pb2.TranslateRequest(text="we are eating bread")
            ),
        ]
        seen = [{"role": "user", "content": [{"type": "image_url", "image_url": {"url": url}}]}]
        said = [{"role": "user", "content": "we are eating bread"}]
        bodies = [
            {"model": "scenes", "messages": seen, "logprobs": True, "top_logprobs": 1},
            {"model": "en-es", "messages": said, "source_language": "en"},
        ]
        whole = [await client.post(CHAT, **each) for each in bodies]
        return typed, whole, [await client.post(CHAT, **each, stream=True) for each in bodies]

    typed, whole, streams = run(demo_repository, ["scenes", "en-es"], talk)
    for answer, chat, events in zip(typed, whole, streams, strict=True):
        (choice,) = chat["choices"]
        assert {"role": "assistant", "content": answer.completion.text, "refusal": None} == choice["message"]
        assert ({0: answer.completion.text}, {0: "stop"}) == texts(events)
        assert {"role": "assistant", "content": ""} == events[0]["choices"][0]["delta"]
        assert ("chatcmpl-r1", "chat.completion.chunk") == (events[0]["id"], events[0]["object"])
    content = whole[0]["choices"][0]["logprobs"]["content"]
    assert list(typed[0].completion.token_log_probs) == [each["logprob"] for each in content]
    assert all(each["token"] == each["top_logprobs"][0]["token"] for each in content)
    *said, end = content
    assert typed[0].completion.text == "".join(each["token"] for each in said)
    assert typed[0].completion.text.encode() == bytes(byte for each in said for byte in each["bytes"])
    assert (typed[0].completion.tokens[-1], None) == (end["token"], end["bytes"])


def test_a_chat_is_that_of_its_template(tmp_path, tiny_repository):
    """Messages are answered as by Generate, and their tokens are told. Without a template, the way out is told."""
    directory = tmp_path / "tiny-gpt" / "1"
    template = b"{% for message in messages %}{{ message.content }} {% endfor %}"
    with_template(tiny_repository / "tiny-gpt" / "1", directory, template)
    turns = [{"role": "user", "content": "the cat"}, {"role": "assistant", "content": "sees"}]

    async def talk(client):
        typed = await client.caller.unary(
            METHODS["Generate"], generation_pb2.GenerateRequest(messages={"turns": turns})
        )
        whole = await client.post(CHAT, model="tiny-gpt", messages=turns)
        return typed, whole, await client.post("/tokenize", model="tiny-gpt", messages=turns, return_token_strs=True)

    typed, whole, cut = run(tmp_path, ["tiny-gpt"], talk)
    assert typed.completion.text == whole["choices"][0]["message"]["content"]
    assert typed.completion.usage.input_tokens == whole["usage"]["prompt_tokens"] == cut["count"]
    assert len(cut["tokens"]) == len(cut["token_strs"]) == cut["count"]


def test_a_chat_without_a_template_is_refused_with_a_way_out(demo_repository):
    """The advice of the error is something that the server then takes."""

    async def talk(client):
        body = {"model": "pydocs", "messages": [{"role": "user", "content": "hi"}]}
        return await client.send("POST", CHAT, body), await client.send("POST", CHAT, body | {"stream": True})

    for status, _, answer in run(demo_repository, ["pydocs"], talk):
        assert (400, "messages") == (status, answer["error"]["param"])
        assert "send a prompt to /v1/completions" in answer["error"]["message"]


def test_embeddings_are_those_of_embed(tiny_repository):
    """As numbers and as bytes they are the bits of the typed call, in the order of the inputs, cut if asked."""

    async def talk(client):
        model = {"name": "tiny-embed"}
        inputs = [{"text": "a cat"}, {"text": "the big dog"}]
        typed = await client.caller.unary(METHODS["Embed"], embedding_pb2.EmbedRequest(model=model, inputs=inputs))
        ask = {"model": "tiny-embed", "input": ["a cat", "the big dog"]}
        forms = [await client.post("/v1/embeddings", **ask, encoding_format=each) for each in ("float", "base64")]
        short = await client.post("/v1/embeddings", model="tiny-embed", input="a cat", dimensions=2)
        return typed, forms, short

    typed, (numbers, encoded), short = run(tiny_repository, ["tiny-embed"], talk)
    expected = [list(each.values) for each in typed.embeddings]
    assert expected == [each["embedding"] for each in numbers["data"]]
    assert expected == [np.frombuffer(base64.b64decode(each["embedding"]), "<f4").tolist() for each in encoded["data"]]
    assert {"prompt_tokens": typed.usage.input_tokens, "total_tokens": typed.usage.input_tokens} == numbers["usage"]
    assert 2 == len(short["data"][0]["embedding"])


TRANSCRIPTIONS = "/v1/audio/transcriptions"


def test_transcriptions_are_those_of_transcribe(demo_repository):
    """In each format: the text, its segments and words, and when they are said. A stream has the text too."""
    recording = EXAMPLES / "commands/examples/eighty-eight-fifty-five.wav"
    file = recording.read_bytes()

    async def talk(client):
        request = transcription_pb2.TranscribeRequest(
            audio={"data": file}, timestamps=True, explain={}, return_scores=True
        )
        typed = await client.caller.unary(METHODS["Transcribe"], request)
        shapes = {}
        for shape in ("json", "text", "srt", "vtt", "verbose_json"):
            more = {"timestamp_granularities[]": "word"} if shape == "verbose_json" else {}
            _, _, shapes[shape] = await client.send(
                "POST", TRANSCRIPTIONS, *form(file, model="commands", response_format=shape, **more)
            )
        _, _, events = await client.send("POST", TRANSCRIPTIONS, *form(file, model="commands", stream="true"))
        return typed, shapes, events

    typed, shapes, events = run(demo_repository, ["commands"], talk)
    text, first = typed.completion.text, typed.segments[0]
    assert (text, f"{text}\n") == (shapes["json"]["text"], shapes["text"])
    assert f"1\n{clock(first.start_s, ',')} --> {clock(first.end_s, ',')}\n{first.text}\n\n" in shapes["srt"]
    assert f"WEBVTT\n\n{clock(first.start_s, '.')} --> {clock(first.end_s, '.')}\n{first.text}\n\n" in shapes["vtt"]
    words = [each["word"] for each in shapes["verbose_json"]["words"]]
    assert (text.split(), "segments" in shapes["verbose_json"]) == (words, False)
    deltas = [each["delta"] for each in events[:-2]]
    assert (text, text, "[DONE]") == ("".join(deltas), events[-2]["text"], events[-1])


def clock(seconds, point):
    """A time as subtitles have it."""
    return f"00:00:{int(seconds):02}{point}{round(seconds * 1000) % 1000:03}"


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"response_format": "xml"}, "response_format"),
        ({"stream": "true", "response_format": "srt"}, "response_format"),
        ({"timestamp_granularities[]": "word"}, "timestamp_granularities"),
        ({"include[]": "logprobs", "response_format": "text"}, "include"),
        ({"prompt": "names: Ada"}, "prompt"),
        ({"temperature": "hot"}, "temperature"),
        ({"temperature": "11"}, "temperature"),
        ({"color": "red"}, "color"),
        ({"model[]": "n"}, "model"),
        ({"temperature[]": "0"}, "temperature"),
    ],
)
def test_what_a_form_cannot_ask_for_is_refused_by_name(fields, param):
    """As of JSON: nothing is left out silently."""
    sent = Client(Scripted(), common_pb2.TASK_TRANSCRIBE).send("POST", TRANSCRIPTIONS, *form(b"x", model="m", **fields))
    status, _, answer = asyncio.run(sent)

    assert (400, param) == (status, answer["error"]["param"])


def test_a_field_of_a_form_is_utf8():
    """One that is not is refused by its name."""
    body, kind = form(b"x", model="m", language="?")
    client = Client(Scripted(), common_pb2.TASK_TRANSCRIBE)
    status, _, answer = asyncio.run(client.send("POST", TRANSCRIPTIONS, body.replace(b"?", b"\xff"), kind))
    assert (400, "language", "invalid_field") == (status, answer["error"]["param"], answer["error"]["code"])


def test_what_is_no_form_is_refused():
    """JSON, half a form, no file and two files."""
    body, kind = form(b"x", model="m")
    twice = body.replace(b"--B--\r\n", b"") + body
    many = body.replace(b"--B--\r\n", b"--B\r\n\r\n\r\n" * 100 + b"--B--\r\n")
    for sent in (
        (many, kind),
        (b"{}", "application/json"),
        (body[:-20], kind),
        (b"", kind),
        (b"--B--\r\n", kind),
        (twice, kind),
    ):
        status, _, answer = asyncio.run(Client(Scripted()).send("POST", TRANSCRIPTIONS, *sent))
        assert (400, "invalid_request_error") == (status, answer["error"]["type"]), sent
    _, _, answer = asyncio.run(Client(Scripted()).send("POST", TRANSCRIPTIONS, many, kind))
    assert "bad_form" == answer["error"]["code"]


def test_a_translation_asks_for_english():
    """The one path writes down what is spoken, the other one says it in English, whatever the model's default is."""
    done = transcription_pb2.TranscribeResponse(completion={"text": "t", "finish_reason": 1})
    for path, to_english in ((TRANSCRIPTIONS, False), ("/v1/audio/translations", True)):
        caller = Scripted(done)
        asyncio.run(Client(caller).send("POST", path, *form(b"x", model="m")))
        request = caller.asked[0][1]
        assert (True, to_english) == (request.HasField("to_english"), request.to_english)


def judged(*scores):
    """What a cross-encoder says of itself, and answers to each of some pairs."""
    return [
        model_pb2.GetModelResponse(model={"takes_pairs": True, "labels": ["l"]}),
        *(
            classification_pb2.ClassifyResponse(labels=[{"label": "l", "score": each}], usage={"input_tokens": 3})
            for each in scores
        ),
    ]


def test_rerank_puts_documents_into_order():
    """The most relevant is first, of equal ones the earlier one, and each document is judged beside the query."""
    caller = Scripted(*judged(0.25, -1.5, 7.5, 0.25))
    client, documents = Client(caller, common_pb2.TASK_CLASSIFY_TEXT), ["a", "b", "c", "d"]
    sent = ["a", {"text": "b"}, {"text": "c"}, "d"]
    answer = asyncio.run(client.post("/v1/rerank", model="m", query="q", documents=sent, top_n=3))

    assert [("q", each) for each in documents] == [(each.text, each.text_pair) for _, each in caller.asked[1:]]
    results = [(each["index"], each["relevance_score"], each["document"]["text"]) for each in answer["results"]]
    assert [(2, 7.5, "c"), (0, 0.25, "a"), (3, 0.25, "d")] == results
    assert {"prompt_tokens": 12, "total_tokens": 12} == answer["usage"]


def test_ranks_are_asked_for_where_cohere_s_and_vllm_s_clients_do():
    """Each other path of an endpoint answers as it does."""

    async def told():
        async with served(routes=openai_routes(ModelRegistry([]), 1 << 20), refuse=refuse_path) as server:
            answers = {path: await ask(server, asked(b'{"model": "m"}', path)) for path in paths}
        return {path: (status, json.loads(body)["error"]["param"]) for path, (status, _, body) in answers.items()}

    paths = ["/v1/rerank", "/v2/rerank", "/rerank", "/v1/score", "/score", "/v3/rerank"]
    rank, pair, nothing = (400, "query"), (400, "text_1"), (404, None)
    assert dict(zip(paths, [rank, rank, rank, pair, pair, nothing], strict=True)) == asyncio.run(told())


def test_score_judges_pairs():
    """One text beside each of several, or pair by pair."""
    for first, pairs in (("q", [("q", "a"), ("q", "b")]), (["p", "q"], [("p", "a"), ("q", "b")])):
        caller = Scripted(*judged(0.5, 0.75))
        answer = asyncio.run(Client(caller).post("/v1/score", model="m", text_1=first, text_2=["a", "b"]))
        assert [0.5, 0.75] == [each["score"] for each in answer["data"]]
        assert pairs == [(each.text, each.text_pair) for _, each in caller.asked[1:]]
    refused = Client(Scripted()).refusal("/v1/score", model="m", text_1=["a", "b"], text_2=["c"])
    assert (400, "text_1", "invalid_field") == asyncio.run(refused)


def test_only_a_cross_encoder_ranks():
    """Of several labels the best one's probability says nothing of how relevant a text is."""
    for card in ({"takes_pairs": True, "labels": ["a", "b"]}, {"takes_pairs": False, "labels": ["a"]}):
        client = Client(Scripted(model_pb2.GetModelResponse(model=card)))
        refused = asyncio.run(client.refusal("/v1/rerank", model="m", query="q", documents=["a"]))
        assert (400, "model", "wrong_input_kind") == refused


def test_the_models_are_those_that_answer():
    """By each name that a request may give: versions where there are several, and adapters."""
    ready, failed = model_pb2.MODEL_STATE_READY, model_pb2.MODEL_STATE_FAILED
    listed = [("a", 1, ready, ["x"]), ("b", 1, ready, []), ("b", 2, ready, []), ("c", 1, failed, [])]
    models = [{"name": n, "version": v, "state": s, "task": 5, "adapters": a} for n, v, s, a in listed]
    client = Client(Scripted(model_pb2.ListModelsResponse(models=models)))
    _, _, answer = asyncio.run(client.send("GET", "/v1/models"))

    assert ["a", "a:x", "b", "b@1", "b@2"] == [each["id"] for each in answer["data"]]
    assert all({"model", "weft"} == {each["object"], each["owned_by"]} for each in answer["data"])


def test_one_model_is_told_as_in_the_list():
    """Under the name that was asked for."""
    card = {"name": "b", "version": 2, "task": 5, "state": model_pb2.MODEL_STATE_READY, "adapters": ["x"]}
    for name in ("b@2", "b@2:x"):
        caller = Scripted(model_pb2.GetModelResponse(model=card))
        status, _, answer = asyncio.run(Client(caller).send("GET", "/v1/models/*", parameter=name))
        assert (200, name, "model", "weft") == (status, answer["id"], answer["object"], answer["owned_by"])
        ((_, request),) = caller.asked
        assert ("b", 2) == (request.model.name, request.model.version)


@pytest.mark.parametrize(
    ("name", "state", "told", "headers"),
    [
        ("b:nope", model_pb2.MODEL_STATE_READY, (404, "adapter_not_found", "model"), {"x-should-retry": "false"}),
        ("b", model_pb2.MODEL_STATE_FAILED, (503, "model_not_ready", None), {"x-should-retry": "false"}),
        (
            "b", model_pb2.MODEL_STATE_LOADING, (503, "model_not_ready", None),
            {"retry-after": "5", "retry-after-ms": "5000"},
        ),
    ],
)  # fmt: skip
def test_a_name_that_the_list_has_not_is_told_as_a_call_is(name, state, told, headers):
    """An adapter that is not there, a model that was refused, and one that is loading: when to ask again."""
    caller = Scripted(model_pb2.GetModelResponse(model={"name": "b", "version": 1, "state": state, "adapters": ["x"]}))
    status, said, answer = asyncio.run(Client(caller).send("GET", "/v1/models/*", parameter=name))
    assert told == (status, answer["error"]["code"], answer["error"]["param"])
    assert headers == said


def test_tokens_are_told_as_they_stand_in_the_text():
    """The first one without its space, half a character as bytes, a special one by its name; nothing is infinite."""
    spelt = {(1, True): b"a", (1, False): b" a", (2, False): b"\xe2\x80", (3, False): None, (3, True): None}
    output = common_pb2.Output(
        token_ids=[1, 1, 2, 3], tokens=["a", "a", "<0xE2>", "<end>"], token_log_probs=[-1, -2, -3, float("-inf")]
    )
    told = completion_log_probs(output, lambda id_, begins: spelt[id_, begins])
    chat = chat_log_probs(output, lambda id_, begins: spelt[id_, begins])["content"]

    assert ["a", " a", "bytes:\\xe2\\x80", "<end>"] == told["tokens"] == [each["token"] for each in chat]
    assert [[97], [32, 97], [0xE2, 0x80], None] == [each["bytes"] for each in chat]
    assert ([-1, -2, -3, -9999], [0, 1, 3, 3]) == (told["token_logprobs"], told["text_offset"])
    behind = common_pb2.Output(token_ids=[3, 1, 1], tokens=["<start>", "a", "a"], token_log_probs=[-1, -1, -1])
    behind.top_tokens.extend(common_pb2.TopTokens(token_ids=[1], tokens=["a"], log_probs=[-1]) for _ in range(3))
    told = completion_log_probs(behind, lambda id_, begins: spelt[id_, begins])
    assert (["<start>", "a", " a"], [0, 0, 1]) == (told["tokens"], told["text_offset"])
    assert [["a"], ["a"], [" a"]] == [[*each] for each in told["top_logprobs"]]
    gone = chat_log_probs(output, None)["content"]
    assert [("a", None), ("a", None)] == [(each["token"], each["bytes"]) for each in gone[:2]]


def test_subtitles_are_what_players_read():
    """Hours, and a text that has no line break and no arrow of its own."""
    segments = [SimpleNamespace(start_s=3661.5, end_s=3662.0004, text=" a -->\nb ")]

    assert "1\n01:01:01,500 --> 01:01:02,000\na -> b\n\n" == srt(segments)
    assert "WEBVTT\n\n01:01:01.500 --> 01:01:02.000\na -> b\n\n" == vtt(segments)
