"""What OpenAI's requests are called, and what their errors call the fields; messages that go back; forms that end."""

import asyncio
import logging

import msgspec
import pytest

from openai_calls import Client, Scripted, form, refused
from weft_proto.v1 import common_pb2, generation_pb2
from weft_server.errors import InvalidRequest
from weft_server.models.registry import ModelRegistry
from weft_server.openai_api import chat, forms
from weft_server.openai_api.error_bodies import error_body
from weft_server.openai_api.known_models import KnownModels

CHAT, COMPLETIONS, TRANSCRIPTIONS = "/v1/chat/completions", "/v1/completions", "/v1/audio/transcriptions"
DONE = generation_pb2.GenerateResponse(completion={"text": "t", "finish_reason": 1})


def test_errors_name_what_a_client_knows():
    """A wrong name of a request stands in a header, and a picture in the messages."""

    def param(field, own):
        error = error_body(refused(InvalidRequest(field, "is wrong")).refusal, own)
        return msgspec.json.decode(error)["error"]["param"]

    assert "x-request-id" == param("x-request-id", {})
    assert "messages" == param("image.data", chat.PARAMS) == param("image", chat.PARAMS)


def test_an_answer_is_a_message_of_the_next_request():
    """As the SDK gives it back, with every field that it knows of a message, and none of them used."""
    caller = Scripted(DONE)
    unused = dict.fromkeys(("refusal", "annotations", "audio", "function_call", "tool_calls"))

    async def talk(**more):
        message = {"content": "c", "role": "assistant"} | unused | more
        return await Client(caller).send("POST", CHAT, {"model": "m", "messages": [message]})

    assert 200 == asyncio.run(talk())[0]
    caller.answers = [DONE]
    assert 200 == asyncio.run(talk(annotations=[]))[0]
    status, _, answer = asyncio.run(talk(annotations=[{"type": "url_citation"}]))
    assert (400, "messages[0].annotations") == (status, answer["error"]["param"])


def test_a_form_ends_with_its_last_boundary(caplog):
    """Otherwise it may have been cut. What is wrong with a form is told its caller, and not the log."""
    body, kind = form(b"x" * 100, model="m")
    caplog.set_level(logging.DEBUG)
    for cut in (body.removesuffix(b"--B--\r\n"), body.removesuffix(b"--\r\n"), b"--C" + body):
        sent = Client(Scripted(), common_pb2.TASK_TRANSCRIBE).send("POST", TRANSCRIPTIONS, cut, kind)
        status, _, answer = asyncio.run(sent)
        assert (400, "bad_form") == (status, answer["error"]["code"])
    assert [] == [each for each in caplog.records if each.name.startswith("python_multipart")]


def test_a_form_has_as_many_parts_as_its_bound():
    """One more is refused."""
    fields = {f"f{number}": "x" for number in range(forms.MAX_PARTS - 1)}
    assert forms.MAX_PARTS == len(forms.read_form(*form(b"x", **fields)))
    with pytest.raises(InvalidRequest, match="more than 64 parts"):
        forms.read_form(*form(b"x", one="more", **fields))


@pytest.mark.parametrize(
    "second",
    [b'; name="model"', b';NAME = "model"', b'\r\nContent-Disposition: form-data; name="model"'],
    ids=["beside it", "spelled otherwise", "in another header"],
)
def test_a_part_of_a_form_has_one_name(second):
    """A proxy may have judged the other one."""
    body, kind = form(b"x", language="n")
    sent = Client(Scripted()).send("POST", TRANSCRIPTIONS, body.replace(b'"language"', b'"language"' + second), kind)
    status, _, answer = asyncio.run(sent)
    assert (400, "bad_form") == (status, answer["error"]["code"])
    assert [b"n"] == forms.read_form(*form(b"x", language="n"))["language"]


def test_the_type_of_a_form_is_short():
    """A long one would take long to read."""
    body, kind = form(b"x", model="m")
    sent = Client(Scripted()).send("POST", TRANSCRIPTIONS, body, kind + ";" * 15_000)
    status, _, answer = asyncio.run(sent)
    assert (400, "bad_form") == (status, answer["error"]["code"])


def test_of_a_model_that_is_not_there_nothing_is_known():
    """Not what its tokens are, so they are taken to have seams."""
    known = KnownModels(ModelRegistry([]))
    gone = common_pb2.ResolvedModel(name="gone", version=1)
    assert (None, True) == (known.spelling_of(gone), known.has_seams(gone))
