"""Two callers of the HTTP port, one of them hostile: what he may hold, and that the other one is answered as ever."""

import asyncio

from http_calls import CLASSIFY, connected, head, response, served
from intercepted import run
from weft_server.admission import load_shedding
from weft_server.errors import Overloaded

CHUNKED = "transfer-encoding: chunked"
CHUNK = b"10000\r\n" + bytes(1 << 16) + b"\r\n"


def _held_bytes(server):
    """Bytes of bodies that the port's connections keep."""
    bodies = [each._body for each in server.server.connections._open]
    return sum(len(body._data) for body in bodies if body)


def test_a_body_that_nobody_reads_is_not_kept(monkeypatch):
    """Who is refused before the body is read, and is told so later, may send on and on: nothing of it stays."""
    told = asyncio.Event()

    async def refused(*_, **__):
        await told.wait()

    def check(_, __):
        raise Overloaded("BYTE_BUDGET", "this caller has much to read")

    monkeypatch.setattr(load_shedding.LoadShedding, "refused", refused)
    monkeypatch.setattr("weft_server.transport.outgoing.Outgoing.check", check)

    async def scenario():
        async with served() as server, connected(server) as (reader, writer):
            writer.write(head(CLASSIFY, CHUNKED))
            for _ in range(100):
                writer.write(CHUNK)
                await writer.drain()
            assert 0 == _held_bytes(server)
            told.set()
            assert 429 == (await asyncio.wait_for(response(reader), 60))[0]

    run(scenario())
