"""TLS on the HTTP port of calls: who is let in, and certificates that change under open connections."""

import asyncio
import json
import ssl
from contextlib import AsyncExitStack

import pytest
import uvloop

from certificates import Authority
from http_calls import CLASSIFY, STREAM, STREAMS, ask, asked, connected, enveloped, reason, response, served
from intercepted import AUTHORITY, TOKENS, look_twice, run
from waiting import until
from weft_proto.v1.classification_pb2 import ClassifyResponse
from weft_proto.v1.generation_pb2 import StreamGenerateResponse


def trusting(authority=AUTHORITY, paths=None):
    """What a caller trusts and shows. Its host is an address, so no name is sent in the handshake."""
    context = ssl.create_default_context(cadata=authority.certificate.decode())
    context.check_hostname = False
    if paths:
        context.load_cert_chain(*paths)
    return {"ssl": context}


def test_certificates_rotate_under_an_open_connection(tmp_path):
    """It goes on. New connections get the new certificate, of another authority. A broken one changes nothing."""

    async def scenario():
        async with served(tmp_path, tls=True) as server, connected(server, **trusting()) as (reader, writer):
            writer.write(asked())
            assert 200 == (await response(reader))[0]
            other = Authority("another")
            other.issue().write(tmp_path)
            look_twice(server.credentials)
            assert 200 == (await ask(server, asked(), **trusting(other)))[0]
            with pytest.raises(ssl.SSLCertVerificationError):
                await ask(server, asked(), **trusting())
            (tmp_path / "tls.key").write_bytes(b"broken")
            look_twice(server.credentials)
            assert 200 == (await ask(server, asked(), **trusting(other)))[0]
            writer.write(asked())
            assert 200 == (await response(reader))[0]

    run(scenario())


def test_certificates_say_who_calls(tmp_path):
    """One that has no role may not call. None, or one of another authority, does not come in. A token counts first."""
    (tmp_path / "callers").mkdir()

    def shown(*names, by=AUTHORITY):
        return trusting(paths=by.issue("x", hosts=names).write(tmp_path / "callers", names[0]))

    async def scenario():
        async with served(tmp_path, mutual=True, tokens=TOKENS) as server:
            assert (401, "CERTIFICATE_UNKNOWN") == await reason(server, asked(), **shown("other.example.com"))
            assert 200 == (await ask(server, asked(), **shown("signed.example.com")))[0]
            urgent = asked(b"{}", CLASSIFY, "weft-priority: high")
            assert (403, "ROLE_MISSING") == await reason(server, urgent, **shown("signed.example.com"))
            assert 200 == (await ask(server, urgent, **shown("urgent.example.com")))[0]
            token = asked(b"{}", CLASSIFY, "authorization: Bearer token-of-the-caller")
            assert 200 == (await ask(server, token, **shown("other.example.com")))[0]
            for given in (trusting(), shown("signed.example.com", by=Authority())):
                with pytest.raises((OSError, EOFError)):
                    await ask(server, token, **given)

    run(scenario())


def test_the_authorities_of_callers_change_too(tmp_path):
    """Then who was let in is not, and the other way round. To show none is never enough."""
    (tmp_path / "callers").mkdir()
    other = Authority("another")

    async def scenario():
        async with served(tmp_path, mutual=True) as server:
            old, new = (
                trusting(paths=by.issue("x", hosts=["a.example.com"]).write(tmp_path / "callers", name))
                for by, name in ((AUTHORITY, "old"), (other, "new"))
            )
            for comes_in, others in ((old, (new, trusting())), (new, (old, trusting()))):
                assert 200 == (await ask(server, asked(), **comes_in))[0]
                for given in others:
                    with pytest.raises((OSError, EOFError)):
                        await ask(server, asked(), **given)
                (tmp_path / "ca.crt").write_bytes(other.certificate)
                look_twice(server.credentials)

    run(scenario())


def test_handshakes_hold_places(tmp_path, monkeypatch):
    """From the moment at which they are accepted: who says nothing longest makes way for who comes."""
    monkeypatch.setattr("weft_server.api.listener.HANDSHAKE_S", 3600.0)

    async def scenario():
        async with served(tmp_path, tls=True, max_connections=2) as server, AsyncExitStack() as stack:
            silent = [await stack.enter_async_context(connected(server)) for _ in range(6)]
            for reader, _ in silent[:4]:
                assert b"" == await asyncio.wait_for(reader.read(), 60)
            assert 2 == len(server.server.connections.peers)
            assert 200 == (await ask(server, asked(), **trusting()))[0]
            assert b"" == await asyncio.wait_for(silent[4][0].read(), 60)
        assert b"" == await asyncio.wait_for(silent[5][0].read(), 60)

    run(scenario())


@pytest.mark.parametrize("sent", [b"", b"GET / HTTP/1.1\r\n\r\n"], ids=["none", "no TLS"])
def test_a_handshake_that_is_none_ends(tmp_path, monkeypatch, sent):
    """After its time, or at once, and its place is free."""
    monkeypatch.setattr("weft_server.api.listener.HANDSHAKE_S", 0.05)

    async def scenario():
        async with served(tmp_path, tls=True) as server, connected(server) as (reader, writer):
            writer.write(sent)
            await asyncio.wait_for(reader.read(), 60)
            await until(lambda: not server.server.connections.peers)

    run(scenario())


def test_a_large_answer_by_tls_comes_whole(tmp_path):
    """Also where it is more than the buffers on the way."""
    text = "x" * 3_000_000

    async def scenario():
        async with served(tmp_path, tls=True) as server:
            _, _, body = await ask(server, asked(json.dumps({"text": text}).encode()), **trusting())
            assert text == json.loads(body)["labels"][0]["label"]

    run(scenario())


LARGE = "x" * 30_000_000


async def large(request, call):
    """More than the systems of both ends keep."""
    return ClassifyResponse(labels=[{"label": LARGE}])


async def large_part(request, call):
    """The same as a part of a stream."""
    yield StreamGenerateResponse(delta={"text": LARGE})


@pytest.mark.parametrize("loop_factory", [asyncio.new_event_loop, uvloop.new_event_loop], ids=["asyncio", "uvloop"])
@pytest.mark.parametrize("path", [CLASSIFY, STREAM])
def test_an_answer_by_tls_that_is_not_read_is_seen(tmp_path, path, loop_factory):
    """It counts as one on its way, and a drain waits for it, until its caller has it. Who reads late has all of it."""
    answers = {"Classify": large, "StreamGenerate": large_part}

    async def scenario():
        async with served(tmp_path, tls=True, **answers) as server, connected(server, **trusting()) as (reader, writer):
            traffic = server.gate.traffic
            kind, body = ("application/json", b"{}") if path == CLASSIFY else (STREAMS, enveloped(b"{}"))
            writer.write(asked(body, path, kind=kind))
            await until(lambda: len(LARGE) < traffic.outgoing.num_bytes)
            assert 1 == server.gate.num_active
            _, _, body = await response(reader)
            assert LARGE.encode() in body
            await until(lambda: 0 == server.gate.num_active + traffic.outgoing.num_bytes)

    with asyncio.Runner(loop_factory=loop_factory) as runner:
        runner.run(asyncio.wait_for(scenario(), 60))
