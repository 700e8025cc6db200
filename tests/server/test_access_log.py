"""The line of the log that a request has: which requests have one, what stands in it, and what a flood cannot do.

tests/server/test_both_ports.py tries each fault at each method by both ports.
"""

import asyncio
import json
import re
import time

import grpc.aio
import pytest
from structlog.testing import capture_logs

from both_ports import GrpcPort, HttpPort
from http_calls import STREAM, STREAMS, ask, asked, enveloped, served
from intercepted import MAX_REQUEST_BYTES, TOKENS, credentials_of, gate_of, run
from waiting import until
from weft_proto.inference import methods as open_inference
from weft_proto.v1.methods import METHODS
from weft_server.auth.authorization import Authorization
from weft_server.calls.access_log import MAX_LINES, MAX_STRANGERS, WINDOW_S, AccessLog
from weft_server.errors import InvalidRequest
from weft_server.models.registry import ModelRegistry
from weft_server.models.request_context import REQUEST_CONTEXT, RequestContext
from weft_server.openai_api.routes import openai_routes, refuse_path
from weft_server.rpc.interceptor import Interceptor
from weft_server.rpc.services import add_services
from weft_server.source import Ids
from weft_server.transport.traffic import Traffic

TRACE = "0af7651916cd43dd8448eb211c80319c"
TRACED = [("x-request-id", "theirs"), ("traceparent", f"00-{TRACE}-b7ad6b7169203331-01")]
CLASSIFY = METHODS["Classify"]


def _lines(logs):
    return [line for line in logs if line["event"] == "call"]


async def _classify(request, _):
    call = REQUEST_CONTEXT.get()
    call.name(request.request_id)
    if request.text == "wrong":
        raise InvalidRequest("text", "is wrong")
    return CLASSIFY.response(labels=[{"label": "right"}])


async def _embed(request, _):
    REQUEST_CONTEXT.get().name(request.request_id)
    if request.inputs[0].text == "wrong":
        raise InvalidRequest("inputs[0].text", "is wrong")
    return METHODS["Embed"].response(embeddings=[{"values": [1.0]} for _ in request.inputs])


async def _infer(request, _):
    REQUEST_CONTEXT.get().name(request.id)
    if request.model_name == "wrong":
        raise InvalidRequest("model_name", "is wrong")
    return open_inference.METHODS["ModelInfer"].response(model_name=request.model_name)


async def _by_weft(kind, which, tmp_path):
    more = {"traffic": Traffic(), "entries": [], "access_log": which}
    async with kind.served(tmp_path, {"Classify": _classify} | _others(), "", **more) as port:
        for text in ("right", "wrong"):
            await port.ask(CLASSIFY, CLASSIFY.request(text=text).SerializeToString(), TRACED)


def _others():
    return dict.fromkeys(METHODS, _classify)


async def _by_openai(which, tmp_path):
    routes = openai_routes(ModelRegistry([]), 1000)
    async with served(Embed=_embed, routes=routes, refuse=refuse_path, access_log=which) as server:
        headers = [f"{key}: {value}" for key, value in TRACED]
        for text in ("right", "wrong"):
            await ask(server, asked(json.dumps({"model": "m", "input": text}).encode(), "/v1/embeddings", *headers))


async def _by_open_inference(which, tmp_path):
    server = grpc.aio.server(
        interceptors=[Interceptor(gate_of(access_log=which), Authorization(credentials_of()), MAX_REQUEST_BYTES)]
    )
    answers = dict.fromkeys(open_inference.METHODS, _infer)

    async def live(*_):
        return open_inference.METHODS["ServerLive"].response(live=True)

    add_services(server, [open_inference.SERVICE], answers | {"ServerLive": live}, open_inference.METHODS)
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    async with grpc.aio.insecure_channel(f"127.0.0.1:{port}") as channel:
        for name in ("right", "wrong"):
            method = open_inference.METHODS["ModelInfer"]
            call = channel.unary_unary(method.path)(
                method.request(model_name=name).SerializeToString(), metadata=TRACED, timeout=60
            )
            await call.code()
        await channel.unary_unary(open_inference.METHODS["ServerLive"].path)(b"", timeout=60)
    await server.stop(None)


WAYS = {
    "grpc": lambda *given: _by_weft(GrpcPort, *given),
    "http": lambda *given: _by_weft(HttpPort, *given),
    "openai": _by_openai,
    "open inference": _by_open_inference,
}


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize(
    ("which", "codes"), [("off", []), ("errors", ["INVALID_ARGUMENT"]), ("all", ["OK", "INVALID_ARGUMENT"])]
)
def test_a_request_has_one_line(which, codes, way, tmp_path):
    """One that was refused has it, and one that was answered only if all have; a probe of health has none.

    The line has the name and the trace that the request's headers say, by each protocol.
    """
    with capture_logs() as logs:
        run(WAYS[way](which, tmp_path))
    lines = _lines(logs)
    assert codes == [line["code"] for line in lines]
    assert {("theirs", TRACE)} >= {(line["request_id"], line["trace_id"]) for line in lines}
    assert all(line["request_bytes"] > 0 for line in lines)
    assert all(line["response_bytes"] > 0 for line in lines if line["code"] == "OK")


def test_a_request_of_several_calls_has_one_line():
    """It has the status that the caller is told: that of the call which was refused, and of none that went with it."""

    async def generate(request, _):
        REQUEST_CONTEXT.get().name(request.request_id)
        if request.text == "wrong":
            raise InvalidRequest("text", "is wrong")
        return await asyncio.Event().wait() if request.text == "slow" else METHODS["Generate"].response()

    async def scenario():
        routes = openai_routes(ModelRegistry([]), 1000)
        async with served(Generate=generate, routes=routes, refuse=refuse_path) as server:
            body = json.dumps({"model": "m", "prompt": ["right", "slow", "wrong"]}).encode()
            await ask(server, asked(body, "/v1/completions"))

    with capture_logs() as logs:
        run(scenario())
    assert [("INVALID_ARGUMENT", "INVALID_FIELD")] == [(line["code"], line["reason"]) for line in _lines(logs)]


def test_what_a_request_took_is_on_its_line():
    """Tokens of all of its sequences, those of calls that were made for it too; times from its arrival."""
    call = RequestContext("Generate", started=10.0)
    taken = time.monotonic() - call.started
    source = Ids([1, 2, 3])
    other = call.another("Classify")
    first, second = call.sequence(source), other.sequence(source)
    again = call.sequence(source, is_counted=True)
    first.times.admitted, first.times.first_token = 12.0, 14.0
    again.times.admitted, again.times.first_token = 11.0, 15.0
    first.num_output_tokens = second.num_output_tokens = again.num_output_tokens = 5
    for each in (other, call):
        each.let_go()
    assert [] == call.sequences
    with capture_logs() as logs:
        AccessLog("all").write(call, "OK", "")
    (line,) = logs
    assert (6, 10, 1.0, 4.0) == tuple(
        line[key] for key in ("input_tokens", "output_tokens", "queue_s", "first_token_s")
    )
    assert taken - 1e-6 <= line["total_s"] <= time.monotonic() - call.started + 1e-6


def _call(tenant="", peer="ipv4:10.0.0.1:5"):
    call = RequestContext("Classify", tenant=tenant)
    call.peer = peer
    return call


def test_a_flood_of_one_hides_no_other():
    """Of one caller, lines of a kind up to a bound; the rest are one line with their number. Others have theirs."""
    log = AccessLog("errors")

    async def flood():
        for _ in range(3 * MAX_LINES):
            log.write(_call("hostile"), "RESOURCE_EXHAUSTED", "QUEUE_FULL")
        log.write(_call("hostile"), "NOT_FOUND", "MODEL_NOT_FOUND")
        log.write(_call("other"), "RESOURCE_EXHAUSTED", "QUEUE_FULL")
        log.end_window()
        log.write(_call("hostile"), "RESOURCE_EXHAUSTED", "QUEUE_FULL")
        log.end_window()

    with capture_logs() as logs:
        asyncio.run(flood())
    told = [(line["tenant"], line["reason"], line.get("number")) for line in logs]
    assert [
        *[("hostile", "QUEUE_FULL", None)] * MAX_LINES,
        ("hostile", "MODEL_NOT_FOUND", None),
        ("other", "QUEUE_FULL", None),
        ("hostile", "QUEUE_FULL", 2 * MAX_LINES),
        ("hostile", "QUEUE_FULL", None),
    ] == told
    assert WINDOW_S == logs[MAX_LINES + 2]["within_s"]


def test_who_wants_all_lines_gets_all():
    """Nothing is left out, whatever it is."""
    log = AccessLog("all")
    with capture_logs() as logs:
        for _ in range(2 * MAX_LINES):
            log.write(_call(), "RESOURCE_EXHAUSTED", "QUEUE_FULL")
    assert 2 * MAX_LINES == len(_lines(logs))


def test_a_window_ends_by_itself(monkeypatch):
    """What was left out is told also if nothing more comes."""
    monkeypatch.setattr("weft_server.calls.access_log.WINDOW_S", 0.01)

    async def flood():
        log = AccessLog("errors")
        for _ in range(MAX_LINES + 7):
            log.write(_call(), "UNAUTHENTICATED", "TOKEN_UNKNOWN")
        await until(lambda: logs[-1]["event"] == "more calls like it")

    with capture_logs() as logs:
        run(flood())
    assert 7 == logs[-1]["number"]


def test_strangers_are_told_apart_by_their_addresses_and_bounded():
    """One who floods from one address hides no other one. Many addresses share the lines of one, beyond a bound."""
    log = AccessLog("errors")

    async def flood():
        for port in range(2 * MAX_LINES):
            log.write(_call(peer=f"ipv4:10.0.0.1:{port}"), "UNAUTHENTICATED", "TOKEN_UNKNOWN")
        log.write(_call(peer="ipv4:10.0.0.2:5"), "UNAUTHENTICATED", "TOKEN_MISSING")
        for host in range(10 * MAX_LINES):
            log.write(_call(peer=f"ipv6:%5B2001:db8::{host:x}%5D:5"), "UNAUTHENTICATED", "TOKEN_UNKNOWN")
        log.write(_call("known"), "UNAUTHENTICATED", "TOKEN_UNKNOWN")

    with capture_logs() as logs:
        asyncio.run(flood())
    reasons = [line["reason"] for line in logs]
    assert 1 == reasons.count("TOKEN_MISSING")
    assert MAX_LINES + (MAX_STRANGERS - 2) + MAX_LINES + 1 == reasons.count("TOKEN_UNKNOWN")
    assert "known" == logs[-1]["tenant"]


@pytest.mark.parametrize("kind", [GrpcPort, HttpPort])
def test_who_floods_a_port_hides_nobody(kind, tmp_path):
    """The line of another caller is there, by its token, and that of one who lacks a role has its name."""

    async def scenario():
        more = {"traffic": Traffic(), "entries": [], "access_log": "errors"}
        async with kind.served(tmp_path, _others(), TOKENS, **more) as port:
            said = [("authorization", "Bearer token-of-the-scraper")]
            await asyncio.gather(*(port.ask(CLASSIFY, b"", said) for _ in range(MAX_LINES + 10)))
            said = [("authorization", "Bearer token-of-the-caller")]
            await port.ask(CLASSIFY, CLASSIFY.request(text="wrong").SerializeToString(), said)

    with capture_logs() as logs:
        run(scenario())
    told = [(line["tenant"], line["reason"]) for line in _lines(logs)]
    assert MAX_LINES == told.count(("scraper", "ROLE_MISSING"))
    assert ("caller", "INVALID_FIELD") == told[-1]


@pytest.mark.parametrize("kind", [GrpcPort, HttpPort])
def test_a_name_that_is_none_is_refused(kind, tmp_path):
    """A request id of the headers has at most 64 characters, as one of a message. It is in no line."""

    async def scenario():
        async with kind.served(tmp_path, _others(), "", traffic=Traffic(), entries=[], access_log="all") as port:
            return [await port.ask(CLASSIFY, b"", [("x-request-id", "x" * length)]) for length in (64, 65)]

    with capture_logs() as logs:
        assert ["OK", "INVALID_ARGUMENT"] == asyncio.run(scenario())
    assert [("", "x" * 64), ("INVALID_FIELD", "")] == [(line["reason"], line["request_id"]) for line in _lines(logs)]


def _named(request, header):
    """Metadata and a message of Classify; each may say a request id."""
    metadata = [("x-request-id", header)] if header else []
    return metadata, CLASSIFY.request(text=request.pop("text", ""), **request).SerializeToString()


ANSWERED = [
    ({}, "theirs", "theirs"),
    ({"request_id": "inside"}, "theirs", "inside"),
    ({"text": "wrong"}, "theirs", "theirs"),
    ({"text": "wrong", "request_id": "inside"}, "theirs", "inside"),
]


@pytest.mark.parametrize(("request_", "header", "answered"), ANSWERED)
def test_an_answer_by_grpc_says_what_the_request_is_called(request_, header, answered, tmp_path):
    """In its trailing metadata, also of a refusal, where the caller has sent the key. What the message says wins."""

    async def scenario(header):
        metadata, data = _named(dict(request_), header)
        async with (
            GrpcPort.served(tmp_path, _others(), "", traffic=Traffic(), entries=[], access_log="off") as port,
            grpc.aio.insecure_channel(port.target) as channel,
        ):
            call = channel.unary_unary(CLASSIFY.path)(data, metadata=metadata, timeout=60)
            await call.code()
            return dict(await call.trailing_metadata()).get("x-request-id")

    assert answered == asyncio.run(scenario(header))
    assert asyncio.run(scenario("")) is None


def test_who_is_refused_at_once_hears_its_name_too(tmp_path):
    """By gRPC and by HTTP, a stranger and one who asks for a method that there is not."""

    async def scenario():
        more = {"traffic": Traffic(), "entries": [], "access_log": "off"}
        heard = []
        async with (
            GrpcPort.served(tmp_path, _others(), TOKENS, **more) as port,
            grpc.aio.insecure_channel(port.target) as channel,
        ):
            for path in (CLASSIFY.path, "/weft.v1.Nothing/Nothing"):
                call = channel.unary_unary(path)(b"", metadata=TRACED, timeout=60)
                await call.code()
                heard.append(dict(await call.trailing_metadata())["x-request-id"])
        async with served(tmp_path, tokens=TOKENS) as server:
            for path in (CLASSIFY.path, "/weft.v1.Nothing/Nothing"):
                _, headers, _ = await ask(server, asked(b"{}", path, "x-request-id: theirs"))
                heard.append(headers["x-request-id"])
        return heard

    assert ["theirs"] * 4 == asyncio.run(scenario())


@pytest.mark.parametrize("sent", ["theirs", "", None])
def test_an_answer_by_http_says_what_the_request_is_called(sent):
    """In a header, by Connect and by OpenAI's API: what the message says, what the header says, or what was made."""
    header = [] if sent is None else [f"x-request-id: {sent}"]

    async def scenario():
        routes = openai_routes(ModelRegistry([]), 1000)
        async with served(Embed=_embed, routes=routes, refuse=refuse_path) as server:
            bodies = {"/v1/embeddings": b'{"model": "m", "input": "a"}', CLASSIFY.path: b'{"text": "a"}'}
            found = [(await ask(server, asked(body, path, *header)))[1] for path, body in bodies.items()]
            inside = asked(b'{"text": "a", "requestId": "inside"}', CLASSIFY.path, *header)
            streamed = enveloped(b'{"request": {"text": "a", "requestId": "inside"}}')
            named = [inside, asked(streamed, STREAM, *header, kind=STREAMS)]
            return [each["x-request-id"] for each in found], [
                (await ask(server, each))[1]["x-request-id"] for each in named
            ]

    found, named = asyncio.run(scenario())
    assert all(re.fullmatch(sent or "[0-9a-f]{16}", each) for each in found)
    assert ["inside"] * 2 == named
