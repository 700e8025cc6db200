"""What strangers see of the HTTP port: the same for a path that there is and for one that there is not."""

import json

import pytest

from http_calls import CLASSIFY, STREAM, STREAMS, ask, asked, envelopes, served
from intercepted import TOKENS, run
from weft_server.models.registry import ModelRegistry
from weft_server.openai_api.routes import openai_routes, refuse_path

NOTHING = "/weft.v1.GenerationService/Nothing"


@pytest.mark.parametrize(
    ("paths", "kind"),
    [
        ((CLASSIFY, STREAM, NOTHING), "application/json"),
        ((CLASSIFY, STREAM, NOTHING), STREAMS),
        ((CLASSIFY, STREAM, NOTHING), "application/connect+other"),
        (("/v1/completions", "/v1/models/x", "/v1/nothing", "/tokenize", "/nothing", "/"), "application/json"),
    ],
)
@pytest.mark.parametrize("header", ["x: y", "origin: https://evil.example"], ids=["stranger", "page"])
def test_strangers_see_no_difference_between_paths(paths, kind, header, tmp_path):
    """Not in the status, the headers or the body."""

    async def scenario():
        routes = openai_routes(ModelRegistry([]), 99)
        async with served(tmp_path, tokens=TOKENS, routes=routes, refuse=refuse_path) as server:
            seen = []
            for path in paths:
                status, headers, body = await ask(server, asked(b"{}", path, header, "x-request-id: a", kind=kind))
                headers.pop("date")
                seen.append((status, headers, body))
            assert [seen[0]] * len(paths) == seen

    run(scenario())


def test_a_path_that_there_is_not_is_refused_as_its_like():
    """Below /weft. and /grpc. as the Connect protocol has it, elsewhere as OpenAI does."""

    async def scenario():
        async with served(refuse=refuse_path) as server:
            for path, key in ((NOTHING, "code"), ("/grpc.health.v1.Health/Watch", "code"), ("/v1/nothing", "error")):
                status, _, body = await ask(server, asked(b"{}", path))
                assert (404, True) == (status, key in json.loads(body))

    run(scenario())


def test_a_stream_of_a_stranger_ends_with_its_status(tmp_path):
    """As the Connect protocol has it, so that its clients can say why."""

    async def scenario():
        async with served(tmp_path, tokens=TOKENS) as server:
            status, _, body = await ask(server, asked(b"", STREAM, kind=STREAMS))
            ((flags, end),) = envelopes(body)
            assert (200, 2, "unauthenticated") == (status, flags, end["error"]["code"])

    run(scenario())
