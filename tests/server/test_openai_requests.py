"""OpenAI's requests become those of weft.v1, field by field, or are refused by the field's own name."""

import asyncio
import base64
from types import SimpleNamespace

import msgspec
import pytest
from google.protobuf.text_format import MessageToString

import openai_page
from openai_calls import Client, Scripted, form, refused
from weft_proto.decoding import PENALTIES, SAMPLING
from weft_proto.v1 import (
    classification_pb2,
    common_pb2,
    embedding_pb2,
    generation_pb2,
    model_pb2,
    tokenization_pb2,
)
from weft_proto.v1.methods import METHOD_AT, METHODS
from weft_server.errors import (
    CannotDecompress,
    DeadlineExpired,
    Draining,
    InvalidRequest,
    LaneFailed,
    MessageTooSlow,
    ModelNotReady,
    Overloaded,
    Unauthenticated,
)
from weft_server.models.registry import ModelRegistry
from weft_server.openai_api import audio
from weft_server.openai_api.decoding import DECODING_FIELDS
from weft_server.openai_api.error_bodies import TYPES, error_body, error_response
from weft_server.openai_api.model_names import selector_of
from weft_server.openai_api.routes import ENDPOINTS, openai_routes
from weft_server.transport.status import _CODES

CHAT, COMPLETIONS = "/v1/chat/completions", "/v1/completions"
ROWS = {row.name: row for row in (*SAMPLING, *PENALTIES)}
# A value of each field of the decoding, and what stands in the Decoding then.
GIVEN = {
    "num_beams": (3, "beams { num_beams: 3 }"),
    "max_tokens": (7, "max_new_tokens: 7"),
    "min_tokens": (2, "min_new_tokens: 2"),
    "stop": ("end", 'stop: "end"'),
    "stop_token_ids": ([4, 5], "stop_token_ids { ids: 4 ids: 5 }"),
    "n": (2, "num_outputs: 2"),
    "logit_bias": ({"9": -100}, "bias { token_ids { ids: 9 } bias: -100.0 }"),
    "response_format": ({"type": "json_object"}, 'constraint { json_schema: "{\\"type\\": \\"object\\"}" }'),
    "regex": ("a+", 'constraint { regex: "a+" }'),
    "grammar": ("start: /a/", 'constraint { lark: "start: /a/" }'),
    "choice": (["yes", "no"], 'constraint { choice { texts: "yes" texts: "no" } }'),
}


def asked(path=COMPLETIONS, task=common_pb2.TASK_GENERATE, **body):
    """The one request that a POST makes."""
    done = generation_pb2.GenerateResponse(completion={"text": "t", "finish_reason": 1})
    caller = Scripted(done)
    asyncio.run(Client(caller, task).post(path, **{"model": "m"} | body))
    ((method, request),) = caller.asked
    return method, request


def refusal(path=COMPLETIONS, task=common_pb2.TASK_GENERATE, **body):
    """(status, param, code) of a POST that nothing is asked for."""
    caller = Scripted()
    refused = asyncio.run(Client(caller, task).refusal(path, **{"model": "m"} | body))
    assert [] == caller.asked
    return refused


def decoding(**fields):
    """What a completion's fields become, on one line."""
    return MessageToString(asked(prompt="p", **fields)[1].decoding, as_one_line=True)


@pytest.mark.parametrize("name", [each.name for each in DECODING_FIELDS])
def test_a_field_reaches_the_decoding(name):
    """Each field of the table stands where weft.v1 has it, and nothing else is set. The numbers are the table's."""
    if name in {"length_penalty", "early_stopping"}:
        # They are of a search. Alone they would ask for one, where others' clients send their defaults.
        said = {"length_penalty": -1.5, "early_stopping": "never"}
        assert "beams { num_beams: 2 length_penalty: -1.5 early_stopping: EARLY_STOPPING_NEVER }" == decoding(
            num_beams=2, **said
        )
        assert (400, name, "invalid_field") == refusal(prompt="p", **{name: said[name]})
    elif row := ROWS.get(name):
        value = {int: 2, float: 0.5}[row.kind]
        message, field = row.path.split(".")
        assert f"{message} {{ {field}: {value} }}" == decoding(**{name: value})
    else:
        value, expected = GIVEN[name]
        assert expected == decoding(**{name: value})
    assert "" == decoding(**{name: None})


def test_a_schema_reaches_the_server_as_it_stands():
    """The order of its keys is the order of the answer's."""
    schema = '{"type":"object","properties":{"z":{"type":"string"},"a":{"type":"integer"}}}'
    format_ = {
        "type": "json_schema",
        "json_schema": {"name": "n", "strict": True, "schema": msgspec.Raw(schema.encode())},
    }

    assert schema == asked(prompt="p", response_format=format_)[1].decoding.constraint.json_schema
    assert "" == decoding(response_format={"type": "text"})


def test_a_temperature_of_0_draws_nothing():
    """It asks for greedy decoding whatever else is said of draws, and beside a search it changes nothing."""
    assert "greedy { }" == decoding(temperature=0, top_p=0.5, seed=3)
    assert "beams { num_beams: 2 }" == decoding(temperature=0, num_beams=2)
    assert (400, "num_beams", "invalid_field") == refusal(prompt="p", temperature=1, num_beams=2)


@pytest.mark.parametrize(
    ("fields", "param", "code"),
    [
        ({"temperature": 11}, "temperature", "invalid_field"),
        ({"frequency_penalty": -10.5}, "frequency_penalty", "invalid_field"),
        ({"num_beams": 2, "length_penalty": 11}, "length_penalty", "invalid_field"),
        ({"top_k": -2}, "top_k", "invalid_field"),
        ({"seed": 1 << 64}, "seed", "invalid_field"),
        ({"max_tokens": 1 << 32}, "max_tokens", "invalid_field"),
        ({"n": -1}, "n", "invalid_field"),
        ({"logprobs": -1}, "logprobs", "invalid_field"),
        ({"stop_token_ids": [-1]}, "stop_token_ids", "invalid_field"),
        ({"logit_bias": {"a": 1}}, "logit_bias", "invalid_field"),
        ({"logit_bias": {str(1 << 40): 1}}, "logit_bias", "invalid_field"),
        ({"regex": "a", "choice": ["b"]}, "choice", "invalid_field"),
        ({"max_tokens": "7"}, "max_tokens", "invalid_field"),
        ({"tempurature": 1}, "tempurature", "unknown_field"),
        ({"response_format": {"type": "xml"}}, "response_format.type", "invalid_field"),
        ({"response_format": {"type": "json_schema", "json_schema": {"name": "n"}}},
         "response_format.json_schema.schema", "empty_input"),
        ({"best_of": 2}, "best_of", "not_supported"),
        ({"priority": 2}, "priority", "invalid_field"),
        ({"priority": "urgent"}, "priority", "invalid_field"),
        ({"stream_options": {"include_usage": True}}, "stream_options", "invalid_field"),
        ({"source_language": "en"}, "source_language", "not_supported"),
        ({"explain": {"layer": -1}}, "explain", "invalid_field"),
        ({"prompt": []}, "prompt", "empty_input"),
        ({"prompt": ["a", 5]}, "prompt[1]", "wrong_input_kind"),
        ({"prompt": ["a"] * 257}, "prompt", "input_too_long"),
        ({"prompt": [-1]}, "prompt", "invalid_field"),
        ({"model": ""}, "model", "model_required"),
        ({"model": "m@"}, "model", "invalid_field"),
        ({"model": "m:"}, "model", "invalid_field"),
        ({"model": "m@12345678901"}, "model", "invalid_field"),
    ],
)  # fmt: skip
def test_what_cannot_be_done_is_refused_by_name(fields, param, code):
    """A field that is unknown, of another type, out of range or not followed is 400, and the error names it."""
    assert (400, param, code) == refusal(**{"prompt": "p"} | fields)


def test_a_field_that_asks_for_nothing_is_taken():
    """Clients send their defaults. Those that change nothing are no reason to refuse."""
    asked(prompt="p", echo=False, best_of=1, suffix="", user="u", store=False, service_tier="auto", metadata={"a": "b"})
    message = {"role": "user", "content": "hi"}
    asked(CHAT, messages=[message], tools=[], tool_choice="none", modalities=["text"], parallel_tool_calls=True)
    asked(CHAT, messages=[message], verbosity="medium", top_logprobs=0, tool_choice="auto", functions=[])
    asked(CHAT, messages=[message | {"tool_calls": []}], stream_options={"include_usage": False}, logit_bias={})
    assert "sampling { top_k: 0 }" == decoding(top_k=-1), "all tokens, as vLLM's clients say it"


@pytest.mark.parametrize(
    ("given", "header", "claimed"),
    [
        ("high", "", ["HIGH"]), (-1, "", ["HIGH"]), (0, "", ["NORMAL"]), (1, "low", ["LOW"]),
        (None, "", []), (None, "high", []), ("high", "low", None), (0, "high", None), (2, "", None), ("x", "", None),
    ],
)  # fmt: skip
def test_a_priority_is_claimed_by_the_body_or_by_the_header(given, header, claimed):
    """It is a class by its name, or -1, 0 and 1, of which lower is earlier. One that is not the header's is 400."""
    caller = Scripted(generation_pb2.GenerateResponse(completion={"text": "t", "finish_reason": 1}))
    sent = {"model": "m", "prompt": "p", "priority": given}
    status, _, answer = asyncio.run(Client(caller, priority=header).send("POST", COMPLETIONS, sent))

    if claimed is None:
        assert (400, "priority", []) == (status, answer["error"]["param"], caller.asked)
    else:
        assert (200, claimed) == (status, caller.claimed)


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("/v1/chat/completions", {"messages": [{"role": "user", "content": "hi"}]}),
        ("/v1/embeddings", {"input": "a"}),
        ("/v1/rerank", {"query": "q", "documents": ["a"]}),
        ("/v1/score", {"text_1": "a", "text_2": "b"}),
        ("/v1/audio/transcriptions", None),
        ("/v1/audio/translations", None),
    ],
)
def test_every_call_that_waits_has_its_class_before_it_waits(path, body):
    """It is claimed before the first call, by JSON and by a form, whose numbers are texts."""
    for given, claimed in (("low", ["LOW"]), ("1", ["LOW"]), (1, ["LOW"]), ("2", [])):
        caller = Scripted(InvalidRequest("model", "is wrong"))
        if body is None:
            sent = form(b"x", model="m", priority=str(given))
        else:
            sent = ({"model": "m", "priority": given} | body,)
        _, _, answer = asyncio.run(Client(caller).send("POST", path, *sent))
        param = "model" if claimed else "priority"
        assert (param, claimed, len(claimed)) == (answer["error"]["param"], caller.claimed, len(caller.asked))


def test_a_body_that_is_no_json_is_refused():
    """Whatever the bytes are, the client hears what is wrong with them."""
    for body in (b"", b"{", b"\xff", b"[]", b'{"model":"\\ud800"}', b'{"model":' + b"[" * 100_000):
        status, _, answer = asyncio.run(Client(Scripted()).send("POST", COMPLETIONS, body))
        assert (400, "invalid_request_error") == (status, answer["error"]["type"])


def test_names_of_models():
    """A name may have a version or a label, and an adapter."""
    told = {name: selector_of(name) for name in ("m", "m@2", "m@canary", "m:a", "m@2:a", "m@stable:a")}

    assert ["m"] * 6 == [each.name for each in told.values()]
    assert [0, 2, 0, 0, 2, 0] == [each.version for each in told.values()]
    assert ["", "", "canary", "", "", "stable"] == [each.version_label for each in told.values()]
    assert ["", "", "", "a", "a", "a"] == [each.adapter for each in told.values()]


def test_messages_become_a_chat():
    """Parts stay parts, a developer is the system, and an answer of ours is a message as it stands."""
    method, request = asked(
        CHAT,
        messages=[
            {"role": "developer", "content": "be kind"},
            {"role": "user", "content": [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]},
            {"role": "assistant", "content": "c", "refusal": None},
        ],
    )

    turns = [(each.role, each.content, [part.text for part in each.parts]) for each in request.messages.turns]
    expected = [("system", "be kind", []), ("user", "", ["a", "b"]), ("assistant", "c", [])]
    assert ("Generate", expected) == (method, turns)


PICTURE = b"\x89PNG"
URL = "data:image/png;base64," + base64.b64encode(PICTURE).decode()
IMAGE = {"type": "image_url", "image_url": {"url": URL}}
TEXT = {"type": "text", "text": "what is it?"}


def user(*parts):
    """A chat of one message."""
    return [{"role": "user", "content": list(parts)}]


def test_a_picture_is_asked_of_a_model_that_sees():
    """A captioning model takes it alone, one that answers a question beside it, and a chat anywhere."""
    _, request = asked(CHAT, messages=[*user(TEXT, IMAGE), *user(IMAGE)])
    parts = [[part.text or part.image.data for part in turn.parts] for turn in request.messages.turns]
    assert [["what is it?", PICTURE], [PICTURE]] == parts
    method, request = asked(CHAT, common_pb2.TASK_CAPTION, messages=user(IMAGE))
    assert ("Caption", PICTURE) == (method, request.image.data)
    method, request = asked(CHAT, common_pb2.TASK_ANSWER, messages=user(IMAGE, TEXT))
    assert ("Answer", PICTURE, "what is it?") == (method, request.image.data, request.text)
    # Some may be asked nothing: the model says whether it is one.
    method, request = asked(CHAT, common_pb2.TASK_ANSWER, messages=user(IMAGE))
    assert ("Answer", PICTURE, "text", "") == (method, request.image.data, request.WhichOneof("question"), request.text)


@pytest.mark.parametrize(
    ("task", "messages", "param"),
    [
        (common_pb2.TASK_CAPTION, user(IMAGE, TEXT), "messages[0].content"),
        (common_pb2.TASK_CAPTION, user(IMAGE, IMAGE), "messages[0].content"),
        (common_pb2.TASK_ANSWER, user(IMAGE, IMAGE), "messages[0].content"),
        (common_pb2.TASK_ANSWER, user(TEXT), "messages[0].content"),
        (common_pb2.TASK_ANSWER, [*user(IMAGE, TEXT), *user(IMAGE, TEXT)], "messages"),
        (common_pb2.TASK_TRANSLATE, [{"role": "system", "content": "a"}], "messages"),
        (common_pb2.TASK_GENERATE, user(TEXT, {"type": "image_url", "image_url": {"url": "http://a/b.png"}}),
         "messages[0].content[1].image_url.url"),
        (common_pb2.TASK_CLASSIFY_TEXT, user(TEXT), "model"),
        (common_pb2.TASK_GENERATE, user({"type": "input_audio"}), "messages[0].content[0].type"),
        (common_pb2.TASK_GENERATE, [{"role": "tool", "content": "a"}], "messages[0].tool_call_id"),
        (common_pb2.TASK_CAPTION, user({"type": "image_url", "image_url": {"url": "http://a/b.png"}}),
         "messages[0].content[0].image_url.url"),
        (common_pb2.TASK_CAPTION, user({"type": "image_url", "image_url": {"url": "http://a;base64,AAAA"}}),
         "messages[0].content[0].image_url.url"),
        (common_pb2.TASK_CAPTION, user({"type": "image_url", "image_url": {"url": "data:image/png;base64,?"}}),
         "messages[0].content[0].image_url.url"),
    ],
)  # fmt: skip
def test_messages_that_a_model_does_not_take(task, messages, param):
    """What a model would have to leave out is refused, and the error says where it stands."""
    assert (400, param) == refusal(CHAT, task, messages=messages)[:2]


@pytest.mark.parametrize("kind", ["video_url", "video", "input_audio", "file"])
def test_parts_that_others_take_are_refused_by_name(kind):
    """No model reads a video. The error says where it stands, and what can be sent; a part of no kind is only wrong."""
    asked = {"model": "m", "messages": user(TEXT, {"type": kind, kind: {"url": URL}})}
    status, _, answer = asyncio.run(Client(Scripted(), common_pb2.TASK_GENERATE).send("POST", CHAT, asked))
    error = answer["error"]
    assert (400, "messages[0].content[1].type", "not_supported") == (status, error["param"], error["code"])
    assert f"is {kind}, and " in error["message"]
    assert (400, "messages[0].content[0].type", "invalid_field") == refusal(CHAT, messages=user({"type": "films"}))


def test_every_error_has_a_status():
    """The table has each code that gRPC's has. Only what may succeed later is tried again by SDKs."""
    assert TYPES.keys() == {code.name for code in _CODES.values()}
    shown = {
        error.reason: (response.status, dict(response.headers))
        for error in (
            Overloaded("QUEUE_FULL", "full", 0.05),
            Overloaded("BYTE_BUDGET", "full", 0.0001),
            InvalidRequest("f", "is wrong"),
            InvalidRequest("", "is large", "MESSAGE_TOO_LARGE"),
            Draining(),
            ModelNotReady("refused"),
            LaneFailed("STEP_FAILED", "failed"),
            DeadlineExpired(),
            MessageTooSlow(),
            Unauthenticated("TOKEN_MISSING", "who?"),
            CannotDecompress(),
        )
        for response in (error_response(refused(error).refusal, {}),)
    }
    never = {"x-should-retry": "false"}
    assert {
        "QUEUE_FULL": (429, {"retry-after-ms": "50", "retry-after": "1"}),
        "BYTE_BUDGET": (429, {"retry-after-ms": "1", "retry-after": "1"}),
        "INVALID_FIELD": (400, never),
        "MESSAGE_TOO_LARGE": (413, never),
        "COMPRESSED": (415, never),
        "DRAINING": (503, {}),
        "MODEL_NOT_READY": (503, never),
        "STEP_FAILED": (500, never),
        "DEADLINE": (504, never),
        "MESSAGE_TOO_SLOW": (408, {}),
        "TOKEN_MISSING": (401, never | {"www-authenticate": "Bearer"}),
    } == shown


def test_an_error_names_the_field_as_the_client_does():
    """In its `param` and at the beginning of its message. A bug tells an id, and nothing else."""

    def told(error, **own):
        shown = msgspec.json.decode(error_body(refused(error).refusal, own))["error"]
        return shown["param"], shown["message"]

    assert ("stop[1]", "stop[1] is bad") == told(InvalidRequest("decoding.stop[1]", "is bad"))
    assert ("logit_bias", "logit_bias is bad") == told(InvalidRequest("decoding.bias[0].token_ids[2]", "is bad"))
    assert ("input[3]", "input[3] is bad") == told(InvalidRequest("inputs[3]", "is bad"), inputs="input")
    assert ("stop_token_ids", "stop_token_ids is bad with n and min_tokens") == told(
        InvalidRequest("decoding.stop_token_ids", "is bad with decoding.num_outputs and min_new_tokens")
    )
    assert (
        "n must be 1 with greedy decoding"
        == told(InvalidRequest("decoding.num_outputs", "must be 1 with decoding.greedy"))[1]
    )
    assert ("prefix", "prefix is bad") == told(InvalidRequest("decoding.prefix", "is bad"))
    assert ("model", "model is bad") == told(InvalidRequest("model.name", "is bad"))
    assert "messages[2].content" == told(InvalidRequest("messages.turns[2].content", "is bad"))[0]
    assert ("messages[2].tool_calls", "messages[2].tool_calls are bad") == told(
        InvalidRequest("messages.turns[2].calls", "are bad")
    )
    assert "messages[2].tool_calls[1].id" == told(InvalidRequest("messages.turns[2].calls[1].id", "is bad"))[0]
    for name in ("name", "arguments"):
        called = f"messages[12].tool_calls[0].function.{name}"
        assert called == told(InvalidRequest(f"messages.turns[12].calls[0].{name}", "is bad"))[0]
    assert "messages[2].tool_call_id" == told(InvalidRequest("messages.turns[2].call_id", "is bad"))[0]
    streamed = InvalidRequest("decoding.num_outputs", "is bad")
    streamed.field = f"request.{streamed.field}"
    assert ("n", "n is bad") == told(streamed)
    assert "secret" not in str(told(ZeroDivisionError("secret")))


def test_the_page_has_every_field():
    """docs/openai.md is made of the endpoints' fields: `python tests/openai_page.py` writes it."""
    shown, same = openai_page.paths(), audio.ENGLISH_PATH

    assert openai_page.page() == openai_page.PAGE.read_text("utf-8")
    assert sorted(each.path for each in ENDPOINTS if each.fields and each.path != same) == sorted(shown)


def test_no_field_is_in_two_lists():
    """Of an endpoint, each field is either taken, refused or ignored, once."""
    for endpoint in ENDPOINTS:
        if endpoint.fields:
            names = [each.name for each in (*endpoint.fields.taken, *endpoint.fields.refused)] + [
                *endpoint.fields.ignored
            ]
            assert len(set(names)) == len(names)


def test_an_embedding_asks_for_each_input():
    """Texts, and token ids as one input or as several, with a prompt by its name. An empty name is none."""
    done = embedding_pb2.EmbedResponse()
    for given in ("a", ["a", "b"], [1, 2], [[1], [2, 3]]):
        caller = Scripted(done)
        asyncio.run(Client(caller).post("/v1/embeddings", model="m", input=given, prompt_name="", dimensions=3))
        ((method, request),) = caller.asked
        assert ("Embed", True, "", 3) == (
            method, request.HasField("prompt_name"), request.prompt_name, request.dimensions,
        )  # fmt: skip
        read = [each.text or list(each.token_ids.ids) for each in request.inputs]
        assert ([given] if isinstance(given, str) or isinstance(given[0], int) else given) == read
    caller = Scripted(done)
    asyncio.run(Client(caller).post("/v1/embeddings", model="m", input="a"))
    assert (False, False) == tuple(map(caller.asked[0][1].HasField, ("prompt_name", "dimensions")))


def test_tokens_are_of_the_side_that_is_asked_for():
    """Default: the model's own. Ids become a text, and a text or a chat ids."""
    cut, text = tokenization_pb2.TokenizeResponse(), tokenization_pb2.DetokenizeResponse(text="t")
    for side, number in ((None, 0), ("input", 1), ("output", 2)):
        caller = Scripted(cut, text)
        client = Client(caller)
        asyncio.run(client.post("/tokenize", model="m", prompt="p", side=side))
        assert {"prompt": "t"} == asyncio.run(client.post("/detokenize", model="m", tokens=[1, 2], side=side))
        (_, tokenize), (_, detokenize) = caller.asked
        assert (number, number, "p", [1, 2]) == (tokenize.side, detokenize.side, tokenize.text, detokenize.token_ids)
    neither = asyncio.run(Client(Scripted()).refusal("/tokenize", model="m"))
    both = Client(Scripted()).refusal("/tokenize", model="m", prompt="p", messages=[])
    assert (400, "prompt", "empty_input") == neither == asyncio.run(both)


def test_a_body_is_weighed_before_it_is_read():
    """It is refused if it is compressed, or of too many parts; and what it becomes counts with it.

    A form is what its endpoint reads as one, whatever its header says.
    """
    routes = {each.path: each for each in openai_routes(ModelRegistry([]), 1000)}

    def weight(data, path=CHAT, **headers):
        request = SimpleNamespace(header=lambda name: headers.get(name.replace("-", "_"), ""))
        return routes[path].weigh(request, data)

    assert 1000 == routes[CHAT].max_bytes
    assert weight(b"[" * 200) > weight(b"x" * 200) == 400
    assert weight(b"[" * 200) == weight(b"{" * 200) == weight(b"," * 200)
    assert 400 == weight(b"[" * 200, audio.HEARD_PATH, content_type="application/json")
    with pytest.raises(CannotDecompress):
        weight(b"", content_encoding="gzip")
    assert 400 == weight(b"x" * 200, content_encoding="Identity")
    for kind in ("", "multipart/form-data"):
        with pytest.raises(InvalidRequest, match="braces, brackets and commas"):
            weight(b"," * 300_000, content_type=kind)


def test_every_route_takes_what_its_table_says():
    """Bodies have a bound, requests without one have none. A model's room is asked for where one task answers."""
    routes = {(each.method, each.path): each for each in openai_routes(ModelRegistry([]), 1000)}

    assert [(each.verb, path) for each in ENDPOINTS for path in (each.path, *each.aliases)] == list(routes)
    assert {"GET": {0}, "POST": {1000}} == {
        verb: {each.max_bytes for each in routes.values() if each.method == verb} for verb in ("GET", "POST")
    }
    assert routes["POST", CHAT].rpc.path not in METHOD_AT, "a model of any task may answer a chat"
    assert METHODS["Embed"] is routes["POST", "/v1/embeddings"].rpc


class SecondRefused(Scripted):
    """A ApiCaller that refuses what is asked for the entry `bad`, or [9]."""

    async def unary(self, method, request):
        """A cross-encoder's card, an answer or the refusal."""
        if method.name == "GetModel":
            return model_pb2.GetModelResponse(model={"takes_pairs": True, "labels": ["l"]})
        field = self.answers[0]
        if "bad" in {getattr(request, "text", ""), getattr(request, "text_pair", "")} or "token_ids" in field:
            raise refused(InvalidRequest(field, "is wrong"))
        if method.name.endswith("Generate"):
            return generation_pb2.GenerateResponse(completion={"text": "t", "finish_reason": 1})
        return classification_pb2.ClassifyResponse(labels=[{"label": "l", "score": 0.5}])

    async def stream(self, method, request):
        """The same as the only response."""
        yield generation_pb2.StreamGenerateResponse(final=await self.unary(method, request.request))


@pytest.mark.parametrize(
    ("path", "body", "field", "param"),
    [
        ("/v1/completions", {"prompt": ["a", "b", "bad"]}, "text", "prompt[2]"),
        ("/v1/completions", {"prompt": ["a", "b", "bad"], "stream": True}, "text", "prompt[2]"),
        ("/v1/completions", {"prompt": ["bad", "bad"], "echo": True}, "text", "prompt[0]"),
        ("/v1/completions", {"prompt": [[9], [9]]}, "token_ids.ids[0]", "prompt[0][0]"),
        ("/v1/completions", {"prompt": "bad"}, "text", "prompt"),
        ("/v1/completions", {"prompt": ["a", "bad"]}, "decoding.stop", "stop"),
        ("/v1/rerank", {"query": "q", "documents": ["a", "bad"]}, "text_pair", "documents[1]"),
        ("/v1/rerank", {"query": "bad", "documents": ["a", "b"]}, "text", "query"),
        ("/v1/score", {"text_1": ["a", "bad"], "text_2": ["c", "d"]}, "text", "text_1[1]"),
        ("/v1/score", {"text_1": "bad", "text_2": ["c", "d"]}, "text", "text_1"),
    ],
)
def test_a_refusal_tells_which_entry_of_a_list_is_wrong(path, body, field, param):
    """In its `param`, and at the beginning of its message. What all entries share has its own name."""
    status, _, answer = asyncio.run(Client(SecondRefused(field)).send("POST", path, {"model": "m"} | body))
    error = answer[-1]["error"] if status == 200 else answer["error"]
    assert (param, f"{param} is wrong") == (error["param"], error["message"])
