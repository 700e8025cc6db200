"""JSON that protobuf's own reader takes for something else than it says: it is refused."""

import json

import pytest

from http_calls import ask, asked, served
from intercepted import run
from weft_proto.v1.methods import METHODS


@pytest.mark.parametrize(
    ("method", "body", "expected"),
    [
        ("Classify", b'{"model": []}', "model must be a JSON object"),
        ("Classify", b'{"explain": ""}', "explain must be a JSON object"),
        ("Generate", b'{"decoding": {"lengthDecay": [ ]}}', "decoding.lengthDecay must be a JSON object"),
        ("Embed", b'{"inputs": [{"text": "a"}, []]}', "inputs must be a JSON object"),
        ("Embed", b'{"inputs": [""]}', "inputs must be a JSON object"),
        ("Classify", b'{"\\ud800": 1}', "the request is not a valid message: its JSON is no such message"),
    ],
)
def test_what_is_no_object_is_refused(method, body, expected):
    """An empty list or text in place of a message is not the message without fields. It is named by its path."""

    async def scenario():
        async with served() as server:
            status, _, said = await ask(server, asked(body, METHODS[method].path))
            assert (400, expected) == (status, json.loads(said)["message"])

    run(scenario())


@pytest.mark.parametrize(
    "body", [b'{"text": "", "labels": [], "model": null, "explain": {}}', b'{"text": ": [], \\"\\""}']
)
def test_what_is_empty_may_be(body):
    """Texts, lists and objects without anything in them are taken where they belong."""

    async def scenario():
        async with served() as server:
            assert 200 == (await ask(server, asked(body)))[0]

    run(scenario())
