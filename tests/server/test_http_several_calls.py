"""Requests of HTTP that make several calls: how each is counted, and what they are together."""

import asyncio
import json
import time
from contextlib import aclosing

from http_calls import ask, asked, connected, counted, generate, rejected, served
from intercepted import gate_of, run
from waiting import until
from weft_proto.v1 import classification_pb2, generation_pb2
from weft_proto.v1.methods import METHODS
from weft_server.admission import load_shedding
from weft_server.api.caller import Caller
from weft_server.api.connect_protocol import refuse_unknown
from weft_server.api.http_messages import HttpResponse, HttpStream, Route
from weft_server.api.refusal import Refused
from weft_server.errors import InvalidRequest, Overloaded
from weft_server.models.request_context import REQUEST_CONTEXT, RequestContext
from weft_server.openai_api.batch import merged
from weft_server.telemetry.metrics import Metrics
from weft_server.transport.traffic import Traffic

CLASSIFY, STREAM = METHODS["Classify"], METHODS["StreamGenerate"]


def row(path, answer):
    """A route."""
    return Route("POST", path, CLASSIFY, 99, lambda _, data: len(data), answer, refuse_unknown, None)


async def classify(request, call):
    """A label that is the text, or a refusal."""
    assert REQUEST_CONTEXT.get() is call
    if request.text == "wrong":
        raise InvalidRequest("text", "is wrong")
    return classification_pb2.ClassifyResponse(labels=[{"label": request.text}])


async def _several(request, caller):
    """Two texts, of which the second is refused, side by side with a stream."""
    texts = [CLASSIFY.request(text=text) for text in ("a", "wrong")]

    async def streamed():
        message = STREAM.request(request={"text": "ab"})
        async with aclosing(caller.stream(STREAM, message)) as responses:
            return [response async for response in responses]

    calls = [*(caller.unary(CLASSIFY, each) for each in texts), streamed()]
    first, second, third = await asyncio.gather(*calls, return_exceptions=True)
    said = {"first": first.labels[0].label, "second": second.refusal.field, "third": len(third)}
    return HttpResponse(200, json.dumps(said).encode())


async def _none(request, caller):
    return HttpResponse(200, b"[]")


def test_a_route_may_make_calls():
    """Each has its own context, and is counted with its status. A request that makes none is counted as one."""

    async def scenario():
        async with served(routes=[row("/several", _several), row("/none", _none)], Classify=classify) as server:
            _, _, body = await ask(server, asked(b"", "/several"))
            assert {"first": "a", "second": "text", "third": 3} == json.loads(body)
            assert {"OK": 2, "INVALID_ARGUMENT": 1} == counted(server)
            assert 200 == (await ask(server, asked(b"", "/none")))[0]
            assert {"OK": 3, "INVALID_ARGUMENT": 1} == counted(server)
            assert 400 == (await ask(server, asked(bytes(100), "/none")))[0]

    run(scenario())


def test_a_call_lasts_until_it_is_answered(monkeypatch):
    """What its request does then is not its time. The last call lasts until the response is out, as by gRPC."""
    times, seconds, count_call = [], [], Metrics.count_call

    def note(metrics, *ended):
        seconds.append(ended[-1])
        count_call(metrics, *ended)

    monkeypatch.setattr(Metrics, "count_call", note)

    async def slow(request, caller):
        for _ in range(2):
            await caller.unary(CLASSIFY, CLASSIFY.request(text="a"))
            times.append(time.monotonic())
            await asyncio.sleep(0.05)
        return HttpResponse(200, b"")

    async def scenario():
        async with served(routes=[row("/slow", slow)], Classify=classify) as server:
            times.append(time.monotonic())
            await ask(server, asked(b"", "/slow"))
            await until(lambda: counted(server))

    run(scenario())
    first, last = seconds
    assert first <= times[1] - times[0]
    assert last >= 0.05


async def _in_turn(request, caller):
    """A stream of two calls, one after the other."""

    async def chunks():
        for text in ("ab", "cd"):
            message = STREAM.request(request={"text": text})
            async with aclosing(caller.stream(STREAM, message)) as responses:
                async for response in responses:
                    yield response.delta.text.encode() or b"."

    return HttpStream("text/plain", chunks())


def test_a_call_of_a_stream_that_has_ended_is_not_late():
    """It had its answer before the deadline, which ends another one."""
    contexts = []

    async def late(request, call):
        contexts.append(call)
        if len(contexts) == 1:
            async for each in generate(request, call):
                yield each
            return
        # The deadline is now.
        contexts[0].deadline = call.deadline = time.monotonic()
        yield generation_pb2.StreamGenerateResponse()
        await asyncio.Event().wait()

    async def quiet(request, caller):
        stream = await _in_turn(request, caller)

        async def chunks():
            try:
                async for each in stream.chunks:
                    yield each
            except Refused:
                yield b"refused"

        return HttpStream("text/plain", chunks())

    async def scenario():
        async with served(routes=[row("/quiet", quiet)], StreamGenerate=late) as server:
            _, _, told = await ask(server, asked(b"", "/quiet"))
            assert b"ab..refused" == told
            await until(lambda: counted(server))
            assert {"OK": 1, "DEADLINE_EXCEEDED": 1} == counted(server)

    run(scenario())


def test_who_does_not_read_a_stream_gives_up_what_goes_on():
    """All calls of it that go on. One that had ended was read, and stays as it ended."""
    large = generation_pb2.StreamGenerateResponse(delta={"text": "x" * 5000})

    async def flood(request, call):
        yield large
        while request.request.text == "cd":
            yield large

    async def answer(request, caller):
        first, *others = (caller.stream(STREAM, STREAM.request(request={"text": text})) for text in ("ab", "cd", "cd"))

        async def chunks():
            for streams in ([first], others):
                async with aclosing(merged(streams, 2)) as responses:
                    async for response in responses:
                        yield response.delta.text.encode()

        return HttpStream("text/plain", chunks())

    async def scenario():
        traffic = Traffic(send_timeout_s=0.1)
        async with served(routes=[row("/flood", answer)], traffic=traffic, StreamGenerate=flood) as server:
            async with connected(server) as (reader, writer):
                writer.write(asked(b"", "/flood"))
                await reader.readuntil(b"\r\n\r\n")
                await until(lambda: rejected(server))
            assert ({"ANSWER_UNREAD": 2}, {"OK": 1, "CANCELLED": 2}) == (rejected(server), counted(server))

    run(scenario())


def test_a_response_that_nobody_reads_is_counted_once():
    """It is what the last call gave, however many the request made."""

    async def flood():
        while True:
            yield bytes(5000)

    async def answer(request, caller):
        for _ in range(2):
            await caller.unary(CLASSIFY, CLASSIFY.request())
        return HttpStream("text/plain", flood())

    async def scenario():
        async with served(routes=[row("/flood", answer)], traffic=Traffic(send_timeout_s=0.1)) as server:
            async with connected(server) as (reader, writer):
                writer.write(asked(b"", "/flood"))
                await reader.readuntil(b"\r\n\r\n")
                await until(lambda: rejected(server))
            assert ({"ANSWER_UNREAD": 1}, {"OK": 1, "CANCELLED": 1}) == (rejected(server), counted(server))

    run(scenario())


def test_a_request_is_one_refusal_however_many_calls_it_makes(monkeypatch):
    """All its calls wait for the one that is counted. So a batch neither fills its caller's bucket nor the places."""
    callers, free = [], asyncio.Event()

    async def refused(_, caller, *, holds_connection):
        callers.append((caller, holds_connection))
        await free.wait()

    async def full(request, call):
        raise Overloaded("QUEUE_FULL", "it is full")

    monkeypatch.setattr(load_shedding.LoadShedding, "refused", refused)

    async def scenario():
        caller = Caller(gate_of(), {"Classify": full}, RequestContext("Classify", peer="ipv4:127.0.0.1:5"))
        tasks = [asyncio.create_task(caller.unary(CLASSIFY, CLASSIFY.request())) for _ in range(32)]
        _, waiting = await asyncio.wait(tasks, timeout=0.01)
        assert ([("ipv4:127.0.0.1", True)], 32) == (callers, len(waiting))
        free.set()
        outcomes = await asyncio.gather(*tasks, return_exceptions=True)
        assert ({"QUEUE_FULL"}, 1) == ({each.refusal.reason for each in outcomes}, len(callers))

    run(scenario())
