"""Reflection on a real, guarded gRPC server."""

import asyncio
from contextlib import suppress

import grpc
import grpc.aio
import pytest

from intercepted import interceptor_of
from weft_server.rpc.standard_services import add_reflection


async def _reflect(version, requests):
    """The answers to messages of bytes, and the status in the end."""
    server = grpc.aio.server(interceptors=[interceptor_of()])
    add_reflection(("weft.v1.TranslationService",), server)
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    try:
        async with grpc.aio.insecure_channel(f"127.0.0.1:{port}") as channel:
            call = channel.stream_stream(f"/grpc.reflection.{version}.ServerReflection/ServerReflectionInfo")(
                iter(requests), timeout=10
            )
            answers = [await call.read()]
            with suppress(grpc.aio.AioRpcError):
                while (answer := await call.read()) is not grpc.aio.EOF:
                    answers.append(answer)
            return answers, await call.code()
    finally:
        await server.stop(None)


@pytest.mark.parametrize("version", ["v1", "v1alpha"])
def test_bytes_that_are_no_message_are_the_callers_mistake(version):
    """What came before them is answered; the call ends with INVALID_ARGUMENT, as any other does."""
    list_services = b"\x3a\x00"
    answers, code = asyncio.run(_reflect(version, [list_services]))
    assert (grpc.StatusCode.OK, True) == (code, b"weft.v1.TranslationService" in answers[0])

    again, code = asyncio.run(_reflect(version, [list_services, b"\xff\xff"]))
    assert (grpc.StatusCode.INVALID_ARGUMENT, answers) == (code, again)
