"""Two callers of the HTTP port, one of them hostile: what he may hold, and that the other one is answered as ever."""

import asyncio
import socket
import struct
import tracemalloc
from contextlib import AsyncExitStack
from typing import ClassVar

from http_calls import (
    CLASSIFY,
    STREAM,
    STREAMS,
    asked,
    connected,
    counted,
    enveloped,
    head,
    reason,
    rejected,
    response,
    served,
)
from intercepted import TOKENS, run
from waiting import until
from weft_proto.v1.classification_pb2 import ClassifyResponse
from weft_proto.v1.generation_pb2 import StreamGenerateResponse
from weft_server.admission import load_shedding
from weft_server.api.request_body import RequestBody
from weft_server.errors import Overloaded
from weft_server.transport.traffic import Traffic

CHUNKED = "transfer-encoding: chunked"
CHUNK = b"10000\r\n" + bytes(1 << 16) + b"\r\n"


class Noted(RequestBody):
    """A body that can be asked how many bytes it keeps."""

    made: ClassVar[list[RequestBody]] = []

    def __init__(self, *given):
        super().__init__(*given)
        self.made.append(self)

    @property
    def num_bytes(self):
        """What it keeps."""
        return len(self._data)


def test_a_body_that_nobody_reads_is_not_kept(monkeypatch):
    """Who is refused before the body is read, and is told so later, may send on and on: nothing of it stays."""
    told = asyncio.Event()

    async def refused(*_, **__):
        await told.wait()

    def check(_, __):
        raise Overloaded("BYTE_BUDGET", "this caller has much to read")

    monkeypatch.setattr("weft_server.api.connection.RequestBody", Noted)
    monkeypatch.setattr(load_shedding.LoadShedding, "refused", refused)
    monkeypatch.setattr("weft_server.transport.outgoing.Outgoing.check", check)

    async def scenario():
        async with served() as server, connected(server) as (reader, writer):
            writer.write(head(CLASSIFY, CHUNKED))
            for _ in range(100):
                writer.write(CHUNK)
                await writer.drain()
            assert [0] == [body.num_bytes for body in Noted.made]
            told.set()
            assert 429 == (await asyncio.wait_for(response(reader), 60))[0]

    run(scenario())


def test_nothing_is_written_to_who_has_gone(caplog):
    """The first write that fails is the last, however much there is to say: its call is cancelled."""
    caller, made = socket.socket(), []

    async def flood(request, call):
        yield StreamGenerateResponse(delta={"text": "a"})
        # He goes at once: what he has not read makes it a reset.
        caller.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        caller.close()
        for _ in range(20):
            made.append(1)
            yield StreamGenerateResponse(delta={"text": "a"})

    async def scenario():
        async with served(StreamGenerate=flood) as server:
            caller.connect(("127.0.0.1", server.port))
            caller.sendall(asked(enveloped(b"{}"), STREAM, kind=STREAMS))
            await until(lambda: counted(server))
            assert {"CANCELLED": 1} == counted(server)

    run(scenario())
    assert len(made) <= 2
    assert [] == [record for record in caplog.records if record.name == "asyncio"]


def test_requests_in_a_flood_are_not_kept():
    """Of a flood on one connection the first is answered. What comes behind it is dropped as it comes."""
    going, calls = asyncio.Event(), []

    async def wait(request, call):
        calls.append(request)
        await going.wait()
        return ClassifyResponse()

    async def scenario():
        async with served(Classify=wait) as server, connected(server) as (reader, writer):
            writer.write(asked())
            await until(lambda: calls)
            tracemalloc.start()
            for _ in range(100):
                writer.write(asked() * 300)
                await writer.drain()
                # A turn of the loop, in which the server reads it: the system may take all of it without one.
                await asyncio.sleep(0)
                await asyncio.sleep(0)
            held, _ = tracemalloc.get_traced_memory()
            tracemalloc.stop()
            assert held < 1_000_000
            going.set()
            assert 200 == (await asyncio.wait_for(response(reader), 60))[0]
            assert (1, {"OK": 1}) == (len(calls), counted(server))

    run(scenario())


def test_slow_bodies_make_way_for_those_of_others(tmp_path):
    """Who has most bodies that do not come whole loses the oldest when there is no room. The other one keeps his."""
    body = b'{"text": "' + b"x" * 900 + b'"}'

    def half(token):
        return asked(body, CLASSIFY, f"authorization: Bearer token-of-the-{token}")[:-1]

    async def scenario():
        traffic = Traffic(max_message_bytes=1000, max_held_bytes=4000)
        async with served(tmp_path, tokens=TOKENS, traffic=traffic) as server, AsyncExitStack() as stack:
            honest = await stack.enter_async_context(connected(server))
            honest[1].write(half("caller"))
            hostile = [await stack.enter_async_context(connected(server)) for _ in range(6)]
            for _, writer in hostile:
                writer.write(half("operator"))
            for reader, _ in hostile[:2]:
                status, _, said = await asyncio.wait_for(response(reader), 60)
                assert (429, True) == (status, b"BYTE_BUDGET" in said)
            honest[1].write(body[-1:])
            assert 200 == (await asyncio.wait_for(response(honest[0]), 60))[0]
            assert {"BYTE_BUDGET"} == set(rejected(server))

    run(scenario())


def test_a_tenant_holds_no_more_by_more_connections():
    """As by gRPC, also where a header alone names it: `--tenant-key`. Another one finds room."""
    going = asyncio.Event()

    async def wait(request, call):
        await going.wait()
        return ClassifyResponse()

    def of(tenant):
        return asked(b'{"text": "' + b"x" * 900 + b'"}', CLASSIFY, f"x-tenant: {tenant}")

    async def scenario():
        served_to = served(traffic=Traffic(max_held_bytes=2500), tenant_key="x-tenant", Classify=wait)
        async with served_to as server, connected(server) as first, connected(server) as other:
            first[1].write(of("a"))
            await until(lambda: 1 == server.gate.num_active)
            assert (429, "BYTE_BUDGET") == await reason(server, of("a"))
            other[1].write(of("b"))
            await until(lambda: 2 == server.gate.num_active)
            going.set()
            assert [200, 200] == [(await response(reader))[0] for reader, _ in (first, other)]

    run(scenario())
