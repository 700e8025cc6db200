"""Connections of the HTTP port of calls, by callers that speak HTTP/1.1 themselves: well, half, slowly and wrongly."""

import asyncio
import errno
import os
import socket
from contextlib import AsyncExitStack
from pathlib import Path

import pytest

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
    rejected,
    response,
    served,
)
from intercepted import run
from waiting import until
from weft_proto.v1.classification_pb2 import ClassifyResponse
from weft_proto.v1.generation_pb2 import StreamGenerateResponse
from weft_proto.v1.methods import METHODS
from weft_server.api import connection as connections
from weft_server.api.connect_protocol import refuse_unknown
from weft_server.api.connection import MAX_HEAD_BYTES, MAX_HEADERS
from weft_server.api.http_messages import HttpStream, Route
from weft_server.api.request_body import RequestBody
from weft_server.errors import InvalidRequest
from weft_server.transport.traffic import Traffic

CHUNKED = "transfer-encoding: chunked"


async def _ended(reader):
    """Return once the server has ended a connection."""
    async with asyncio.timeout(60):
        while True:
            try:
                if not await reader.read(1 << 16):
                    return
            except ConnectionResetError:
                return


def other_end(address):
    """A socket of this process that is connected to an address."""
    for path in Path("/proc/self/fd").iterdir():
        if path.is_socket():
            found = socket.socket(fileno=os.dup(int(path.name)))
            try:
                if found.getpeername() == address:
                    return found
            except OSError:
                pass  # it is connected to nobody
            found.close()
    raise AssertionError(address)


def test_each_part_of_a_stream_goes_at_once():
    """The system does not keep small parts back until the last one is acknowledged, which takes 40 ms (Nagle)."""

    async def scenario():
        async with served() as server, connected(server) as (reader, writer):
            writer.write(asked())
            await response(reader)
            with other_end(writer.get_extra_info("sockname")) as accepted:
                assert accepted.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)

    run(scenario())


def test_a_connection_is_used_again():
    """Requests one behind the other, in pieces of a byte, with a length and in chunks, get their answers."""

    async def scenario():
        async with served() as server, connected(server) as (reader, writer):
            for byte in asked():
                writer.write(bytes([byte]))
                await asyncio.sleep(0)
            assert 200 == (await response(reader))[0]
            writer.write(head(CLASSIFY, CHUNKED) + b'5\r\n{"tex\r\n9\r\nt": "hi"}\r\n0\r\nx-more: 1\r\n\r\n')
            status, headers, body = await response(reader)
            assert (200, None, True) == (status, headers.get("connection"), b'"label":"hi"' in body)
            writer.write(asked())
            assert 200 == (await response(reader))[0]

    run(scenario())


def test_http_1_0_gets_no_chunks():
    """Its stream ends with the connection. A host is not needed."""

    async def scenario():
        async with served() as server:
            body = enveloped(b'{"request": {"text": "ab"}}')
            data = asked(body, STREAM, version="1.0", kind=STREAMS).replace(b"host: localhost\r\n", b"")
            status, headers, body = await ask(server, data)
            assert (200, "close", False) == (status, headers["connection"], "transfer-encoding" in headers)
            assert [0, 0, 0, 2] == [flags for flags, _ in envelopes(body)]

    run(scenario())


@pytest.mark.parametrize(
    ("data", "status"),
    [
        pytest.param(asked().replace(b"host: localhost\r\n", b""), 400, id="no host"),
        pytest.param(asked(b"", CLASSIFY, "host: other"), 400, id="two hosts"),
        pytest.param(head(CLASSIFY, "content-length: 5", CHUNKED) + b"0\r\n\r\n", 400, id="length and chunks"),
        pytest.param(head(CLASSIFY, "content-length: 5", "content-length: 6"), 400, id="two lengths"),
        pytest.param(head(CLASSIFY, "content-length: -5"), 400, id="a length below zero"),
        pytest.param(head(CLASSIFY, "transfer-encoding: xchunked"), 501, id="no such encoding"),
        pytest.param(head(CLASSIFY, "transfer-encoding: gzip, chunked"), 501, id="compressed chunks"),
        pytest.param(head(CLASSIFY, "transfer-encoding: gzip", CHUNKED), 501, id="compressed chunks, in two headers"),
        pytest.param(head(CLASSIFY, "transfer-encoding : chunked"), 400, id="a space before the colon"),
        pytest.param(head(CLASSIFY, "x: a\n b"), 400, id="a folded header"),
        pytest.param(head(CLASSIFY, "x: \0"), 400, id="a zero byte"),
        pytest.param(asked(version="2.0"), 505, id="another version"),
        pytest.param(asked(path="http://other/x"), 400, id="a proxy's target"),
        pytest.param(asked(path="/" + "x" * MAX_HEAD_BYTES), 431, id="a long target"),
        pytest.param(asked(b"", CLASSIFY, *["x: y"] * MAX_HEADERS), 431, id="many headers"),
        pytest.param(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", 400, id="HTTP/2"),
        pytest.param(b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + bytes(90), 400, id="TLS"),
    ],
)
def test_what_is_no_request_ends_the_connection(data, status):
    """Whatever it is, also where two servers could read it differently. Others are answered."""

    async def scenario():
        async with served() as server:
            async with connected(server) as (reader, writer):
                writer.write(data)
                assert status == (await response(reader))[0]
                writer.write(asked())  # nobody reads it
                await _ended(reader)
            assert 200 == (await ask(server, asked()))[0]

    run(scenario())


@pytest.mark.parametrize("body", [b"zz\r\n", b"-1\r\n", b"5\r\nabcdefgh", b"1\r\na\r\n" + b"0\r\nx: " + b"y" * 400_000])
def test_chunks_that_are_none_end_the_connection(body):
    """A size that is no number, one that is wrong, and trailers without end. Nothing is held afterwards."""

    async def scenario():
        async with served() as server:
            async with connected(server) as (reader, writer):
                writer.write(head(CLASSIFY, CHUNKED) + body)
                await _ended(reader)
            await until(lambda: 0 == server.gate.traffic.num_open)
            assert 0 == server.gate.traffic.incoming.num_receiving

    run(scenario())


def test_a_body_that_breaks_off_is_refused():
    """What came of it may be a whole message. Nobody says that it was all."""

    async def scenario():
        async with served() as server, connected(server) as (reader, writer):
            writer.write(head(CLASSIFY, CHUNKED) + b'e\r\n{"text": "hi"}\r\n')
            await until(lambda: server.gate.traffic.incoming.num_receiving)
            writer.write(b"zz\r\n")
            status, _, body = await asyncio.wait_for(response(reader), 60)
            assert (400, True) == (status, b"MALFORMED_REQUEST" in body)
            await _ended(reader)

    run(scenario())


def test_who_waits_for_a_body_is_told_at_once_that_it_broke_off():
    """Not when its time is over."""

    async def scenario():
        body = RequestBody(None, None)
        body.bound(9)
        reading = asyncio.create_task(body.read())
        await asyncio.sleep(0)
        body.feed(b"half")
        body.break_off()
        await asyncio.sleep(0)
        assert reading.done()
        with pytest.raises(InvalidRequest, match="ends in what is no HTTP"):
            await reading

    run(scenario())


def test_what_comes_before_the_answer_is_not_read():
    """Of requests sent at once, the first is answered, and the connection ends: its caller sends the others again."""
    calls = []

    async def count(request, call):
        calls.append(request)
        raise AssertionError

    async def scenario():
        async with served(Classify=count) as server, connected(server) as (reader, writer):
            writer.write(asked() * 3)
            assert 500 == (await response(reader))[0]
            await _ended(reader)
            assert 1 == len(calls)

    run(scenario())


def test_a_body_that_is_too_large_is_not_awaited():
    """One that says so is refused before a byte of it has come, one in chunks as soon as it is too large."""

    async def scenario():
        async with served(max_request_bytes=1000) as server:
            for length, start in (("content-length: 2000", b""), (CHUNKED, b"7d0\r\n" + bytes(1500))):
                async with connected(server) as (reader, writer):
                    writer.write(head(CLASSIFY, length))
                    if start:
                        await until(lambda: server.gate.traffic.incoming.num_receiving)
                    writer.write(start)
                    status, headers, body = await asyncio.wait_for(response(reader), 60)
                    assert (400, "close", True) == (status, headers["connection"], b"MESSAGE_TOO_LARGE" in body)
                    await _ended(reader)
            assert 0 == server.gate.traffic.incoming.num_bytes

    run(scenario())


def test_who_asks_first_is_told_to_go_on():
    """Curl waits for that with a large body. Whoever is refused is not told."""

    async def scenario():
        async with served() as server, connected(server) as (reader, writer):
            writer.write(head(CLASSIFY, "content-length: 14", "expect: 100-continue"))
            assert b"HTTP/1.1 100 Continue\r\n\r\n" == await reader.readuntil(b"\r\n\r\n")
            writer.write(b'{"text": "hi"}')
            assert 200 == (await response(reader))[0]
            writer.write(head("/nothing", "content-length: 14", "expect: 100-continue"))
            assert 404 == (await response(reader))[0]

    run(scenario())


def test_an_upgrade_is_declined():
    """As if it had not been asked for, on a connection that ends. With a body it is refused: that cannot be read."""

    async def scenario():
        async with served() as server:
            upgrade = ("connection: upgrade", "upgrade: h2c")
            status, headers, _ = await ask(server, head("/nothing", *upgrade, method="GET"))
            assert (404, "close") == (status, headers["connection"])
            assert 501 == (await ask(server, asked(b'{"text": "a"}', CLASSIFY, *upgrade)))[0]

    run(scenario())


@pytest.mark.parametrize(
    "sent",
    [b"", b"POST / HT", b"GET /\r\n", head()[:-2], asked() + b"POST"],
    ids=["none", "line", "line of HTTP/0.9", "head", "next"],
)
def test_a_head_has_its_time(sent, monkeypatch):
    """Who connects and says nothing, or half a head, is hung up on, between two requests too.

    HTTP/0.9 has no head, so its one line looks like the beginning of one.
    """
    monkeypatch.setattr(connections, "HEAD_S", 0.01)
    monkeypatch.setattr(connections, "IDLE_S", 0.01)

    async def scenario():
        async with served() as server, connected(server) as (reader, writer):
            writer.write(sent)
            await _ended(reader)

    run(scenario())


def test_a_body_has_its_time():
    """As a message of gRPC has: one that does not come whole is refused with MESSAGE_TOO_SLOW."""

    async def scenario():
        async with served(traffic=Traffic(receive_timeout_s=0.1)) as server:
            status, headers, body = await ask(server, head(CLASSIFY, "content-length: 5") + b"{")
            assert (504, "close", True) == (status, headers["connection"], b"MESSAGE_TOO_SLOW" in body)
            assert {"MESSAGE_TOO_SLOW": 1} == rejected(server)

    run(scenario())


def test_who_does_not_read_is_hung_up_on():
    """As on gRPC's port, in the middle of a stream. The call counts as ended for that."""
    ended = []

    async def flood(request, call):
        try:
            while True:
                yield StreamGenerateResponse(delta={"text": "x" * 5000})
        finally:
            ended.append(call.code)

    async def scenario():
        async with served(traffic=Traffic(send_timeout_s=0.1), StreamGenerate=flood) as server:
            async with connected(server) as (reader, writer):
                writer.write(asked(enveloped(b'{"request": {}}'), STREAM, kind=STREAMS))
                await reader.readuntil(b"\r\n\r\n")
                await until(lambda: ended)
            await until(lambda: 0 == server.gate.num_active)
            assert {"ANSWER_UNREAD": 1} == rejected(server)
            assert 0 == server.gate.traffic.outgoing.num_bytes

    run(scenario())


@pytest.mark.parametrize(("version", "said"), [("1.1", b"8\r\n: here\n\n\r\n"), ("1.0", b": here\n\n")])
def test_a_silent_stream_says_that_it_is_there(version, said, monkeypatch):
    """Its comment comes again and again, as a chunk of its own, until it goes on. When it has ended, none comes."""
    goes_on = asyncio.Event()
    monkeypatch.setattr(connections, "SILENCE_S", -1.0)
    monkeypatch.setattr("weft_server.api.http_connections.SWEEP_S", 0.01)

    async def chunks():
        yield b"a"
        await goes_on.wait()
        yield b"z"

    async def silent(request, caller):
        return HttpStream("text/plain", chunks(), comment=b": here\n\n")

    async def classify(request, call):
        await asyncio.sleep(0.05)
        return ClassifyResponse()

    async def scenario():
        row = Route("POST", "/silent", METHODS["Classify"], 99, lambda _, data: len(data), silent, refuse_unknown, None)
        async with served(routes=[row], Classify=classify) as server, connected(server) as (reader, writer):
            writer.write(asked(b"", "/silent", version=version))
            await reader.readuntil(b"a")
            for _ in range(2):
                await reader.readuntil(said)
            goes_on.set()
            await reader.readuntil(b"z")
            if version == "1.1":
                await reader.readuntil(b"\r\n0\r\n\r\n")
                writer.write(asked())
                assert b": here" not in await reader.readuntil(b"HTTP/1.1 200")

    run(scenario())


def test_a_comment_comes_between_chunks_alone(monkeypatch):
    """Whoever reads slowly gets a large chunk in pieces, for longer than the silence that is commented on."""
    monkeypatch.setattr(connections, "SILENCE_S", -1.0)
    monkeypatch.setattr("weft_server.api.http_connections.SWEEP_S", 0.01)
    comment, large = b": here\n\n", b"a" * 30_000_000
    looked = []

    async def chunks():
        yield large

    async def stream(request, caller):
        return HttpStream("text/plain", chunks(), comment=comment)

    async def scenario():
        row = Route("POST", "/large", METHODS["Classify"], 99, lambda _, data: len(data), stream, refuse_unknown, None)
        async with served(routes=[row]) as server, connected(server) as (reader, writer):
            comment_on = connections.Connection.comment_on_silence
            monkeypatch.setattr(
                connections.Connection,
                "comment_on_silence",
                lambda *given: looked.append(server.gate.traffic.outgoing.num_bytes) or comment_on(*given),
            )
            writer.write(asked(b"", "/large"))
            # The sweep has come by while it was sent.
            await until(lambda: len(large) in looked)
            assert large == (await response(reader))[2].replace(comment, b"")

    run(scenario())


@pytest.mark.parametrize("path", [CLASSIFY, STREAM])
def test_a_caller_who_goes_is_noticed_at_once(path):
    """Unary or streamed: what answers is cancelled, and the call counts as that. So is who sends no more (`nc -N`)."""
    state = []

    async def wait(request, call):
        state.append("asked")
        try:
            await asyncio.Event().wait()
        finally:
            state.append("ended")

    async def wait_in_stream(request, call):
        await wait(request, call)
        yield

    async def scenario():
        async with served(Classify=wait, StreamGenerate=wait_in_stream) as server:
            async with connected(server) as (_, writer):
                kind = "application/json" if path == CLASSIFY else STREAMS
                writer.write(asked(b"{}" if path == CLASSIFY else enveloped(b"{}"), path, kind=kind))
                await until(lambda: ["asked"] == state)
            await until(lambda: ["asked", "ended"] == state)
            await until(lambda: 0 == server.gate.num_active + server.gate.traffic.num_open)
            assert {"CANCELLED": 1} == counted(server)

    run(scenario())


def test_one_connection_too_many_is_closed(monkeypatch):
    """At once where all are answered. These get their answers. A place is free again when one has gone."""
    monkeypatch.setattr(connections, "HEAD_S", 3600.0)
    free, calls = asyncio.Event(), []

    async def wait(request, call):
        calls.append(call)
        await free.wait()
        return ClassifyResponse()

    async def scenario():
        async with served(max_connections=2, Classify=wait) as server:
            async with connected(server) as first, connected(server) as second:
                for _, writer in (first, second):
                    writer.write(asked())
                await until(lambda: 2 == len(calls))
                async with connected(server) as (reader, _):
                    await _ended(reader)
                free.set()
                assert [200, 200] == [(await response(reader))[0] for reader, _ in (first, second)]
            await until(lambda: not server.server.connections.peers)
            assert 200 == (await ask(server, asked()))[0]

    run(scenario())


def test_who_is_idle_longest_makes_way(monkeypatch):
    """When all places are taken: one that said nothing yet, one that sends half a head, and one that was answered."""
    monkeypatch.setattr(connections, "HEAD_S", 3600.0)

    async def scenario():
        async with served(max_connections=3) as server, AsyncExitStack() as stack:
            silent, half, answered = [await stack.enter_async_context(connected(server)) for _ in range(3)]
            answered[1].write(asked())
            assert 200 == (await response(answered[0]))[0]
            half[1].write(head()[:-2])
            for reader, _ in (silent, half, answered):
                assert 3 == len(server.server.connections.peers)
                last = await stack.enter_async_context(connected(server))
                await _ended(reader)
                last[1].write(asked())
                assert 200 == (await response(last[0]))[0]
            assert 3 == server.gate.traffic.num_ended

    run(scenario())


def test_who_comes_in_one_moment_makes_way_too(monkeypatch):
    """Six that are accepted in one turn: the last two have the places, and each of the others is ended once."""
    monkeypatch.setattr(connections, "HEAD_S", 3600.0)

    async def scenario():
        async with served(max_connections=2) as server, AsyncExitStack() as stack:
            address = ("127.0.0.1", server.port)
            callers = [stack.enter_context(socket.create_connection(address)) for _ in range(6)]
            await until(lambda: 4 == server.gate.traffic.num_ended)
            assert 2 == len(server.server.connections.peers)
            for caller in callers[:4]:
                assert b"" == await asyncio.to_thread(caller.recv, 1)

    run(scenario())


def test_what_is_accepted_goes_on_when_files_are_there_again(monkeypatch):
    """Without a file for it a connection waits. It is answered a moment later."""
    monkeypatch.setattr("weft_server.api.listener.PAUSE_S", 0.01)
    accept, refused = socket.socket.accept, []

    def none(listening):
        if len(refused) < 3:
            refused.append(listening)
            raise OSError(errno.EMFILE, "Too many open files")
        return accept(listening)

    async def scenario():
        async with served() as server:
            monkeypatch.setattr(socket.socket, "accept", none)
            assert 200 == (await ask(server, asked()))[0]
            assert 3 == len(refused)

    run(scenario())


def test_a_bug_within_a_head_is_loud(monkeypatch, caplog):
    """It is told by the log, and ends the connection. It is not taken for a request that is none."""

    def fail(_):
        raise KeyError("a bug")

    monkeypatch.setattr(connections.Connection, "_request", fail)

    async def scenario():
        async with served() as server, connected(server) as (reader, writer):
            writer.write(asked())
            assert b"" == await asyncio.wait_for(reader.read(), 60)

    run(scenario())
    assert ["asyncio"] == [record.name for record in caplog.records if record.levelname == "ERROR"]
