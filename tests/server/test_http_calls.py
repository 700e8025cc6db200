"""Calls by HTTP: who may call, what is refused and how, deadlines, drains, floods, and pages of browsers."""

import asyncio
import json
from types import SimpleNamespace

import pytest
from structlog.testing import capture_logs

from http_calls import (
    CLASSIFY,
    STREAM,
    STREAMS,
    ask,
    asked,
    connected,
    counted,
    enveloped,
    envelopes,
    head,
    reason,
    rejected,
    response,
    served,
)
from intercepted import TOKENS, entry_of, run
from waiting import until
from weft_proto.v1 import classification_pb2, common_pb2, generation_pb2
from weft_proto.v1.methods import METHODS, SERVICES
from weft_server.admission import load_shedding
from weft_server.api.codecs import MAX_JSON_PARTS, JsonCodec
from weft_server.api.connect_protocol import connect_routes, refuse_unknown
from weft_server.api.http_messages import HttpRequest, HttpResponse, Route
from weft_server.errors import InvalidRequest, Overloaded
from weft_server.sequence import Priority
from weft_server.transport.traffic import Traffic

TEXT = b'{"text": "hi"}'
CALLER = "authorization: Bearer token-of-the-caller"
TIMEOUT = "connect-timeout-ms: 50"


def test_unary_in_both_forms():
    """JSON and binary protobuf, with the content type that was sent."""

    async def scenario():
        async with served() as server:
            status, headers, body = await ask(server, asked(TEXT, kind="application/json; charset=utf-8"))
            assert (200, "application/json") == (status, headers["content-type"])
            assert "hi" == json.loads(body)["labels"][0]["label"]
            request = classification_pb2.ClassifyRequest(text="hi", request_id="mine").SerializeToString()
            status, headers, body = await ask(server, asked(request, kind="application/proto"))
            assert (200, "application/proto") == (status, headers["content-type"])
            found = classification_pb2.ClassifyResponse.FromString(body)
            assert ("hi", "mine") == (found.labels[0].label, found.request_id)
            assert {"OK": 2} == counted(server)

    run(scenario())


def test_a_stream_has_an_end():
    """Envelopes of messages, then one that says how it ended."""

    async def scenario():
        async with served() as server:
            data = asked(enveloped(b'{"request": {"text": "ab"}}'), STREAM, kind=STREAMS)
            status, headers, body = await ask(server, data)
            assert (200, STREAMS) == (status, headers["content-type"])
            *deltas, whole, end = envelopes(body)
            assert ["a", "b"] == [message["delta"]["text"] for _, message in deltas]
            assert "ab" == whole[1]["final"]["completion"]["text"]
            assert (2, {}) == end

    run(scenario())


def test_an_error_in_a_stream_is_its_end():
    """After what has been sent already. Its status is 200, and its code is counted."""

    async def fail(request, call):
        yield generation_pb2.StreamGenerateResponse(delta={"text": "a"})
        raise Overloaded("QUEUE_FULL", "it is full")

    async def scenario():
        async with served(StreamGenerate=fail) as server:
            status, _, body = await ask(server, asked(enveloped(b"{}"), STREAM, kind=STREAMS))
            (_, first), (flags, end) = envelopes(body)
            assert (200, "a", 2) == (status, first["delta"]["text"], flags)
            assert ("resource_exhausted", {"retry-after": ["1"]}) == (end["error"]["code"], end["metadata"])
            assert {"QUEUE_FULL": 1} == rejected(server)

    run(scenario())


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        (asked(b'{"txt": "a"}'), (400, "MALFORMED_REQUEST")),
        (asked(b'{"text": "a", "text": "b"}'), (400, "MALFORMED_REQUEST")),
        (asked(b'{"text": 1}'), (400, "MALFORMED_REQUEST")),
        (asked(b'{"topK": ' + b"1" * 5000 + b"}"), (400, "MALFORMED_REQUEST")),
        (asked(b"[" * 5000), (400, "MALFORMED_REQUEST")),
        (asked(b'{"text": "\xff"}'), (400, "MALFORMED_REQUEST")),
        (asked(b""), (400, "MALFORMED_REQUEST")),
        (asked(b" []"), (400, "MALFORMED_REQUEST")),
        (asked(b"\x08", kind="application/proto"), (400, "MALFORMED_REQUEST")),
        (asked(b'{"labels": [' + b"{}," * MAX_JSON_PARTS + b"{}]}"), (400, "MESSAGE_TOO_LARGE")),
        (asked(json.dumps({"labels": ["a"] * 2000}).encode()), (400, "INPUT_TOO_LONG")),
        (asked(TEXT, kind="text/plain"), (415, "WRONG_CONTENT_TYPE")),
        (asked(TEXT, STREAM), (415, "WRONG_CONTENT_TYPE")),
        (asked(TEXT, CLASSIFY, "content-encoding: gzip"), (501, "COMPRESSED")),
        (asked(TEXT, CLASSIFY, "connect-protocol-version: 2"), (400, "INVALID_FIELD")),
        (asked(TEXT, CLASSIFY, "connect-timeout-ms: soon"), (400, "INVALID_FIELD")),
        (asked(TEXT, CLASSIFY, "weft-priority: urgent"), (400, "INVALID_FIELD")),
        (asked(TEXT, "/weft.v1.ModelAdminService/LoadModel"), (404, "METHOD_NOT_FOUND")),
        (asked(TEXT, "/"), (404, "METHOD_NOT_FOUND")),
    ],
)
def test_what_is_wrong_has_its_reason(data, expected):
    """As gRPC says it, in the details of the error. It is counted as a call that ended so."""

    async def scenario():
        async with served() as server:
            assert expected == await reason(server, data)
            assert {expected[1]: 1} == rejected(server)
            assert 0 == server.gate.num_active + server.gate.traffic.num_open + server.gate.traffic.incoming.num_bytes

    run(scenario())


def test_the_name_of_no_compression_may_have_capitals():
    """As any name of a content coding."""

    async def scenario():
        async with served() as server:
            assert 200 == (await ask(server, asked(TEXT, CLASSIFY, "content-encoding: Identity")))[0]

    run(scenario())


def test_json_has_as_many_parts_as_its_bound():
    """One more is refused before anything is made of it."""
    codec = JsonCodec(METHODS["Classify"], 1 << 20)
    assert MAX_JSON_PARTS < codec.weigh(b"," * MAX_JSON_PARTS)
    with pytest.raises(InvalidRequest, match="braces, brackets and commas"):
        codec.weigh(b"," * (MAX_JSON_PARTS + 1))


def test_no_body_is_held_beside_its_message():
    """While a call is answered, its bytes have gone."""
    (route,) = (each for each in connect_routes(SERVICES, 1 << 20) if each.path == CLASSIFY)
    request = HttpRequest("POST", CLASSIFY, "", [], "peer", None, None, {"content-type": "application/json"}, TEXT)
    held = []

    async def unary(_, message):
        held.append((message.text, request.body))
        return classification_pb2.ClassifyResponse()

    asyncio.run(route.answer(request, SimpleNamespace(unary=unary)))
    assert [("hi", b"")] == held


def test_a_field_that_there_is_not_is_named():
    """By its path, as a client would write it."""

    async def scenario():
        async with served() as server:
            body = enveloped(b'{"request": {"decoding": {"maxTokens": 1}}}')
            _, _, answer = await ask(server, asked(body, STREAM, kind=STREAMS))
            ((_, end),) = envelopes(answer)
            assert "request.decoding.maxTokens is no field of this message" == end["error"]["message"]

    run(scenario())


@pytest.mark.parametrize(
    ("body", "said"),
    [
        (b"", "the call has no message"),
        (b"\0\0", "whole"),
        (enveloped(b"{}") * 2, "one"),
        (enveloped(b"{}", 1), "compress"),
        (enveloped(b"{}", 2), "one"),
        (enveloped(b"{}")[:-1], "one"),
    ],
    ids=["none", "half", "two", "compressed", "an end", "cut"],
)
def test_a_stream_takes_one_envelope(body, said):
    """Any other body is refused in the stream's end."""

    async def scenario():
        async with served() as server:
            status, _, answer = await ask(server, asked(body, STREAM, kind=STREAMS))
            ((flags, end),) = envelopes(answer)
            assert (200, 2) == (status, flags)
            assert end["error"]["code"] in {"invalid_argument", "unimplemented"}
            assert said in end["error"]["message"]

    run(scenario())


def test_a_method_of_http_that_there_is_not():
    """405 with those that there are. HEAD gets no body."""

    async def scenario():
        async with served() as server, connected(server) as (reader, writer):
            writer.write(head(method="GET"))
            status, headers, _ = await response(reader)
            assert (405, "post") == (status, headers["allow"])
            writer.write(head("/nothing", method="HEAD"))
            assert b"HTTP/1.1 404" in await reader.readuntil(b"\r\n\r\n")
            writer.write(asked())
            assert 200 == (await response(reader))[0]

    run(scenario())


def test_a_bug_is_an_id():
    """500 and an id, under which the log has it. The connection goes on."""

    async def fail(request, call):
        raise KeyError("secret")

    async def scenario():
        async with served(Classify=fail) as server:
            status, _, body = await ask(server, asked())
            assert (500, False, True) == (status, b"secret" in body, b'"reason": "BUG"' in body)
            assert {"INTERNAL": 1} == counted(server)

    run(scenario())


def test_who_may_call(tmp_path):
    """Strangers get 401 for whatever path, who lacks the role 403, and the others an answer; priorities too."""

    async def scenario():
        async with served(tmp_path, tokens=TOKENS) as server:
            for path in (CLASSIFY, "/nothing"):
                assert (401, "TOKEN_MISSING") == await reason(server, asked(TEXT, path))
                wrong = asked(TEXT, path, "authorization: Bearer token-of-nobody")
                assert (401, "TOKEN_UNKNOWN") == await reason(server, wrong)
                twice = asked(TEXT, path, "authorization: Bearer token-of-nobody", CALLER)
                assert (401, "TOKEN_UNKNOWN") == await reason(server, twice)
            scraper = asked(TEXT, CLASSIFY, "authorization: Bearer token-of-the-scraper")
            assert (403, "ROLE_MISSING") == await reason(server, scraper)
            urgent = asked(TEXT, CLASSIFY, CALLER, "weft-priority: high")
            assert (403, "ROLE_MISSING") == await reason(server, urgent)
            assert 200 == (await ask(server, asked(TEXT, CLASSIFY, CALLER)))[0]
            assert "bearer" == (await ask(server, asked()))[1]["www-authenticate"]

    run(scenario())


async def _urgent(request, caller):
    """What a body asks for, as a route takes it."""
    caller.claim(Priority[request.body.decode()])
    text = (await caller.unary(METHODS["Classify"], classification_pb2.ClassifyRequest(text="a"))).labels[0].label
    return HttpResponse(200, text.encode())


def test_a_priority_in_a_body_is_judged_as_that_of_the_header(tmp_path):
    """Who lacks the role high may not claim it, and nobody is asked then. All others get the class that they claim."""

    async def classify(request, call):
        return classification_pb2.ClassifyResponse(labels=[{"label": call.priority.name}])

    async def scenario():
        row = Route(
            "POST", "/urgent", METHODS["Classify"], 99, lambda _, data: len(data), _urgent, refuse_unknown, None
        )
        async with served(tmp_path, tokens=TOKENS, routes=[row], Classify=classify) as server:
            assert (403, "ROLE_MISSING") == await reason(server, asked(b"HIGH", "/urgent", CALLER))
            assert b"LOW" == (await ask(server, asked(b"LOW", "/urgent", CALLER)))[2]
            search = "authorization: Bearer token-of-the-search"
            assert b"HIGH" == (await ask(server, asked(b"HIGH", "/urgent", search)))[2]
            assert {"OK": 2, "PERMISSION_DENIED": 1} == counted(server)

    run(scenario())


@pytest.mark.parametrize("path", [CLASSIFY, STREAM])
def test_a_deadline_ends_a_call(path):
    """It is told as gRPC tells it, and what answered has been cancelled."""
    ended = []

    async def wait(request, call):
        try:
            await asyncio.Event().wait()
        finally:
            ended.append(call)

    async def wait_in_stream(request, call):
        await wait(request, call)
        yield

    async def scenario():
        async with served(Classify=wait, StreamGenerate=wait_in_stream) as server:
            if path == CLASSIFY:
                assert (504, "DEADLINE") == await reason(server, asked(TEXT, path, TIMEOUT))
            else:
                _, _, body = await ask(server, asked(enveloped(b"{}"), path, TIMEOUT, kind=STREAMS))
                assert "deadline_exceeded" == envelopes(body)[-1][1]["error"]["code"]
            assert 1 == len(ended)
            assert ({"DEADLINE_EXCEEDED": 1}, {"DEADLINE": 1}) == (counted(server), rejected(server))

    run(scenario())


def test_a_drain_waits_for_answers_and_refuses_the_rest():
    """New requests get 503 and when to try again, bodies on their way too, and each connection ends."""
    going = asyncio.Event()

    async def wait(request, call):
        await going.wait()
        return classification_pb2.ClassifyResponse()

    async def scenario():
        async with served(Classify=wait) as server, connected(server) as slow, connected(server) as half:
            slow[1].write(asked())
            half[1].write(head(CLASSIFY, "content-length: 5"))
            await until(lambda: 1 == server.gate.num_active == server.gate.traffic.incoming.num_receiving)
            server.gate.refuse()
            for each in (await response(half[0]), await ask(server, asked())):
                assert (503, "close", "1") == (each[0], each[1]["connection"], each[1]["retry-after"])
                assert b"DRAINING" in each[2]
            going.set()
            status, headers, _ = await response(slow[0])
            assert (200, "close") == (status, headers["connection"])
            await asyncio.wait_for(server.gate.idle(), 60)
            assert {"OK": 1, "UNAVAILABLE": 2} == counted(server)

    run(scenario())


def test_a_full_model_is_refused_by_the_headers(monkeypatch):
    """Before the body has come. A flood is told later, and counted under the model."""
    callers = []

    async def refused(_, caller, *, holds_connection):
        callers.append((caller, holds_connection))

    monkeypatch.setattr(load_shedding.LoadShedding, "refused", refused)
    entries = [entry_of("full", full=True, task=common_pb2.TASK_CLASSIFY_TEXT)]

    async def scenario():
        async with served(entries=entries) as server:
            for _ in range(3):
                assert (429, "QUEUE_FULL") == await reason(server, head(CLASSIFY, "content-length: 14"))
            async with connected(server) as (reader, writer):
                for _ in range(3):
                    writer.write(asked())
                    status, headers, _ = await response(reader)
                    assert (429, "1") == (status, headers["retry-after"])
            # A stranger is an address: by HTTP, who asks more has more connections.
            assert [("ipv4:127.0.0.1", True)] * 6 == callers
            assert 0 == server.gate.traffic.num_open

    run(scenario())


def test_memory_of_bodies_is_counted_with_those_of_grpc():
    """What all callers hold together is bounded, and one more is refused with BYTE_BUDGET."""
    going = asyncio.Event()

    async def wait(request, call):
        await going.wait()
        return classification_pb2.ClassifyResponse()

    async def scenario():
        async with served(traffic=Traffic(max_held_bytes=1500), Classify=wait) as server, connected(server) as first:
            body = json.dumps({"text": "x" * 900}).encode()
            first[1].write(asked(body))
            await until(lambda: server.gate.num_active)
            assert (429, "BYTE_BUDGET") == await reason(server, asked(body))
            going.set()
            assert 200 == (await response(first[0]))[0]
            await until(lambda: 0 == server.gate.traffic.incoming.num_bytes)

    run(scenario())


ORIGIN = "origin: https://app.example.com"


@pytest.mark.parametrize(
    ("origins", "origin", "may"),
    [
        ("", "", True),
        ("", ORIGIN, False),
        ("https://app.example.com", ORIGIN, True),
        ("https://app.example.com", "origin: https://app.example.com.evil.org", False),
        ("https://app.example.com", "origin: null", False),
        ("*", ORIGIN, True),
    ],
)
def test_which_pages_may_call(origins, origin, may):
    """Those of the settings, and no others: whatever a page of another origin sends is refused, and runs nothing."""

    async def scenario():
        settings = {"cors_origins": origins} if origins else {}
        async with served(**settings) as server:
            headers = [origin] if origin else []
            status, said, _ = await ask(server, asked(TEXT, CLASSIFY, *headers))
            assert (200 if may else 403) == status
            known = bool(origin) and may
            assert (origin.removeprefix("origin: ") if known else None) == said.get("access-control-allow-origin")
            wishes = ("access-control-request-method: POST", "access-control-request-headers: content-type")
            preflight = head(CLASSIFY, *headers, *wishes, method="OPTIONS")
            status, said, _ = await ask(server, preflight)
            assert (204 if known else 403 if origin else 405) == status
            assert ("content-type" if known else None) == said.get("access-control-allow-headers")

    run(scenario())


def test_the_log_line_of_a_call():
    """It is the one that a call by gRPC has."""

    async def refuse(request, call):
        raise InvalidRequest("text", "is wrong")

    async def scenario():
        async with served(Classify=refuse) as server:
            await ask(server, asked())

    with capture_logs() as logs:
        run(scenario())
    (line,) = logs
    assert ("call", "Classify", "INVALID_ARGUMENT", "INVALID_FIELD") == tuple(
        line[key] for key in ("event", "method", "code", "reason")
    )
