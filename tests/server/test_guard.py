"""The guard around calls of a real gRPC server."""

import asyncio

import grpc
import grpc.aio
from prometheus_client import generate_latest
from structlog.testing import capture_logs

from weft_server.guard import Guard
from weft_server.metrics import Metrics

METHOD = "/weft.v1.Test/Flood"


async def _flood(request, context):
    """Messages that soon fill every window between server and caller."""
    while True:
        yield bytes(1 << 20)


def test_a_caller_who_leaves_during_a_write_is_no_bug():
    """One who never reads makes the write wait; when they go it fails, and counts as cancelled."""

    async def run():
        metrics = Metrics()
        guard = Guard(metrics)
        server = grpc.aio.server(interceptors=[guard])
        handler = grpc.unary_stream_rpc_method_handler(_flood, request_deserializer=bytes)
        server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler("weft.v1.Test", {"Flood": handler}),))
        port = server.add_insecure_port("127.0.0.1:0")
        await server.start()
        with capture_logs() as logs:
            for _ in range(20):
                async with grpc.aio.insecure_channel(f"127.0.0.1:{port}") as channel:
                    call = channel.unary_stream(METHOD)(b"")
                    await call.read()
                    await asyncio.sleep(0.05)
                    call.cancel()
            await asyncio.wait_for(guard.idle(), 20)
        await server.stop(None)
        assert [] == [entry for entry in logs if entry["event"] == "bug"]
        lines = generate_latest(metrics.registry).decode().splitlines()
        counted = [line for line in lines if line.startswith("weft_requests_total") and not line.endswith(" 0.0")]
        assert ["20.0"] == [line.split()[-1] for line in counted]
        assert 'code="CANCELLED"' in counted[0]

    asyncio.run(run())
