"""What the port of gRPC bounds: connections, handshakes, pings, metadata, and the messages of each method."""

import asyncio
import time

import grpc
import grpc.aio
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc

from intercepted import (
    AUTHORITY,
    HEALTH,
    MAX_REQUEST_BYTES,
    REFLECTION,
    ask,
    entry_of,
    methods,
    open_channel,
    run,
    served,
)
from weft_proto.inference import methods as open_inference
from weft_proto.inference.open_inference_pb2 import InferTensorContents
from weft_proto.v1 import bundle_pb2
from weft_proto.v1.common_pb2 import Audio, Image
from weft_proto.v1.methods import METHODS
from weft_server.admission.message_limits import MAX_NAME_BYTES, MAX_TEXT_BYTES, max_bytes


def test_connections_are_bounded_and_handshakes_end(tmp_path, monkeypatch):
    """One connection more than the bound is closed at once. One that says nothing is closed after some time."""
    monkeypatch.setattr("weft_server.rpc.grpc_server.HANDSHAKE_S", 4)

    async def is_closed(reader):
        return b"" == await asyncio.wait_for(reader.read(), 20)

    async def scenario():
        async with served(tmp_path, tls=True, tokens="", max_connections=3) as (target, _, _):
            host, port = target.split(":")
            async with open_channel(target, authority=AUTHORITY.certificate) as channel:
                assert ("OK", "") == await ask(channel, HEALTH)
                silent = [await asyncio.open_connection(host, int(port)) for _ in range(3)]
                assert await is_closed(silent[2][0])
                assert not any(reader.at_eof() for reader, _ in silent[:2])
                assert ("OK", "") == await ask(channel, HEALTH)
                assert await is_closed(silent[0][0])
                assert await is_closed(silent[1][0])
                for _, writer in silent:
                    writer.close()
            async with open_channel(target, authority=AUTHORITY.certificate) as channel:
                assert ("OK", "") == await ask(channel, HEALTH)

    run(scenario())


def test_metadata_is_bounded(tmp_path):
    """Up to 16 KiB of headers are read. More are refused, each time, and the connection goes on."""

    async def scenario():
        async with served(tmp_path, tokens="") as (target, _, _), open_channel(target) as channel:
            for _ in range(2):
                assert "OK" == (await ask(channel, HEALTH, token="x" * 15_000))[0]
                assert "RESOURCE_EXHAUSTED" == (await ask(channel, HEALTH, token="x" * 17_000))[0]

    run(scenario())


def test_who_pings_too_often_is_sent_away(tmp_path):
    """The third ping too soon ends the connection, and a new one is taken."""

    async def scenario():
        async with served(tmp_path, tokens="") as (target, _, _):
            reader, writer = await asyncio.open_connection(*target.split(":"))
            writer.write(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + bytes.fromhex("000000040000000000"))
            writer.write(8 * (bytes.fromhex("000008060000000000") + bytes(8)))
            assert b"too_many_pings" in await asyncio.wait_for(reader.read(), 10)
            writer.close()
            async with open_channel(target) as channel:
                assert ("OK", "") == await ask(channel, HEALTH)

    run(scenario())


@pytest.mark.parametrize("why", ["age", "idle"])
def test_connections_end(tmp_path, monkeypatch, why):
    """By their age, and where nothing is asked for long: the server ends them. A caller connects again."""
    if why == "idle":
        monkeypatch.setattr("weft_server.rpc.grpc_server.MAX_IDLE_S", 1)

    async def scenario():
        age_s = 0.5 if why == "age" else 0.0
        settings = {"tokens": "", "max_connection_age_s": age_s}
        async with served(tmp_path, **settings) as (target, _, _), open_channel(target) as channel:
            await channel.channel_ready()
            await channel.wait_for_state_change(grpc.ChannelConnectivity.READY)
            assert ("OK", "") == await ask(channel, HEALTH)

    run(scenario())


def test_a_call_outlives_its_connection_s_age_for_a_time(tmp_path, monkeypatch):
    """Then it is ended: nobody keeps a connection for ever by a call."""
    monkeypatch.setattr("weft_server.rpc.grpc_server.MAX_CALL_S", 1)

    async def scenario():
        settings = {"tokens": "", "max_connection_age_s": 0.5}
        async with served(tmp_path, **settings) as (target, _, _), open_channel(target) as channel:
            began = time.monotonic()
            with pytest.raises(grpc.aio.AioRpcError) as ended:
                async for _ in health_pb2_grpc.HealthStub(channel).Watch(health_pb2.HealthCheckRequest()):
                    pass
            assert grpc.StatusCode.UNAVAILABLE is ended.value.code()
            assert time.monotonic() - began >= 1

    run(scenario())


def holds_a_file(message):
    """Whether a message of that kind may hold a picture or a recording."""
    return any(
        field.message_type in {Image.DESCRIPTOR, Audio.DESCRIPTOR, InferTensorContents.DESCRIPTOR}
        or (field.message_type and holds_a_file(field.message_type))
        for field in message.fields
        if field.message_type is None or field.message_type.full_name != message.full_name
    )


def test_each_method_takes_messages_of_its_kind(tmp_path):
    """One that takes a file takes all that a message may have, one that takes names a few KiB."""
    limits = {method: max_bytes(method, MAX_REQUEST_BYTES) for method in methods()}
    for method, kind in methods().items():
        assert (method, holds_a_file(kind)) == (method, limits[method] == MAX_REQUEST_BYTES)
        _, service, name = method.split("/")
        takes_names = "Model" in service or (service == open_inference.SERVICE and name != "ModelInfer")
        assert (method, takes_names) == (method, limits[method] == MAX_NAME_BYTES)
    assert {MAX_NAME_BYTES} == {max_bytes(method, MAX_REQUEST_BYTES) for method in (HEALTH, REFLECTION)}
    assert 100 == max_bytes("/weft.v1.TranslationService/Translate", 100)

    async def scenario():
        async with served(tmp_path, tokens="") as (target, _, _), open_channel(target) as channel:
            for method in ("/weft.v1.ModelService/GetModel", "/weft.v1.TranslationService/Translate"):
                data = bytes(max_bytes(method, MAX_REQUEST_BYTES) + 1)
                assert (method, "INVALID_ARGUMENT", "MESSAGE_TOO_LARGE") == (method, *await ask(channel, method, data))
            assert MAX_TEXT_BYTES < MAX_REQUEST_BYTES

    run(scenario())


def test_a_generator_of_texts_takes_messages_of_texts(tmp_path):
    """At the door, before the message is parsed: where no model sees pictures, a Generate is as large as a text."""
    blind, seeing = entry_of("a", full=False), entry_of("b", full=False)
    seeing.model.manifest.graphs = [bundle_pb2.Graph(role=bundle_pb2.GRAPH_ROLE_IMAGE_ENCODER)]
    large = b"\xff" * (MAX_TEXT_BYTES + 1)

    async def scenario():
        for entries, reason in (([blind], "MESSAGE_TOO_LARGE"), ([blind, seeing], "MALFORMED_REQUEST")):
            async with served(tmp_path, tokens="", entries=entries) as (target, *_), open_channel(target) as channel:
                for name in ("Generate", "StreamGenerate"):
                    method = METHODS[name].path
                    assert ("INVALID_ARGUMENT", "MALFORMED_REQUEST") == await ask(channel, method, large[:-1])
                    assert ("INVALID_ARGUMENT", reason) == await ask(channel, method, large)

    run(scenario())
