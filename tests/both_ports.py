"""A port of gRPC and one of HTTP over the same made-up answers, and a caller of each who speaks the protocol itself."""

import asyncio
import json
import socket
from contextlib import asynccontextmanager, suppress

import grpc
import grpc.aio

import http_calls
import intercepted
from raw_http2 import RawCaller, framed
from weft_proto.v1.methods import SERVICES
from weft_server.auth.authorization import Authorization
from weft_server.models.registry import ModelRegistry
from weft_server.rpc.interceptor import Interceptor
from weft_server.rpc.services import add_services
from weft_server.telemetry.metrics import Metrics

_CODES = {code.value[0]: code.name for code in grpc.StatusCode}


class GrpcPort:
    """Calls by gRPC."""

    def __init__(self, target, gate, metrics):
        self.target, self.gate, self.metrics = target, gate, metrics

    @classmethod
    @asynccontextmanager
    async def served(cls, tmp_path, answers, tokens, **more):
        """The port. `more`: `traffic`, `entries`, `access_log` and `max_request_bytes`."""
        settings, metrics = {}, Metrics()
        if tokens:
            settings["tokens"] = tmp_path / "tokens"
            settings["tokens"].write_text(tokens)
            settings["tokens"].chmod(0o600)
        gate = intercepted.gate_of(metrics, ModelRegistry(more["entries"]), more["traffic"], more["access_log"])
        access = Authorization(intercepted.credentials_of(metrics, **settings))
        server = grpc.aio.server(
            interceptors=[Interceptor(gate, access, more.get("max_request_bytes", intercepted.MAX_REQUEST_BYTES))]
        )
        add_services(server, SERVICES, answers)
        port = server.add_insecure_port("127.0.0.1:0")
        gate.traffic.connections.ports.add(port)
        await server.start()
        try:
            yield cls(f"127.0.0.1:{port}", gate, metrics)
        finally:
            await server.stop(None)

    async def ask(self, method, data, metadata=(), timeout_s=None):
        """The status of a call."""
        async with self._channel() as channel:
            call = channel.unary_stream(method.path)(data, metadata=metadata, timeout=timeout_s)
            with suppress(grpc.aio.AioRpcError):
                async for _ in call:
                    pass
            return (await call.code()).name

    async def ask_half(self, method, data):
        """The status of a call whose message never comes whole."""

        def status():
            with RawCaller(self.target) as caller:
                stream = caller.open(method.path)
                caller.send(stream, framed(data)[:-1])
                return _CODES[caller.status(stream)[0]]

        return await asyncio.to_thread(status)

    @asynccontextmanager
    async def begun(self, method, data, timeout_s=None):
        """A call that is under way, and whose caller goes behind the block."""
        async with self._channel() as channel:
            call = channel.unary_stream(method.path)(data, timeout=timeout_s)
            yield
            call.cancel()

    @asynccontextmanager
    async def unread(self, method, data, timeout_s=None):
        """A call whose answer nobody reads."""
        headers = [("grpc-timeout", f"{round(1000 * timeout_s)}m")] if timeout_s else []
        caller = await asyncio.to_thread(RawCaller, self.target, window=0)
        with caller:
            caller.reads = False
            await asyncio.to_thread(caller.call, method.path, data, headers=headers)
            yield

    def _channel(self):
        own = [("grpc.use_local_subchannel_pool", 1), ("grpc.enable_retries", 0)]
        return grpc.aio.insecure_channel(self.target, own)


class HttpPort:
    """Calls by HTTP, in binary."""

    def __init__(self, server):
        self.server, self.gate, self.metrics = server, server.gate, server.metrics

    @classmethod
    @asynccontextmanager
    async def served(cls, tmp_path, answers, tokens, **more):
        """See GrpcPort."""
        async with http_calls.served(tmp_path, tokens=tokens, **answers, **more) as server:
            yield cls(server)

    async def ask(self, method, data, metadata=(), timeout_s=None):
        """See GrpcPort."""
        headers = [f"{name}: {value}" for name, value in metadata]
        return _status(method, await http_calls.ask(self.server, _request(method, data, timeout_s, *headers)))

    async def ask_half(self, method, data):
        """See GrpcPort."""
        return _status(method, await http_calls.ask(self.server, _request(method, data)[:-1]))

    @asynccontextmanager
    async def begun(self, method, data, timeout_s=None):
        """See GrpcPort."""
        async with http_calls.connected(self.server) as (_, writer):
            writer.write(_request(method, data, timeout_s))
            yield

    @asynccontextmanager
    async def unread(self, method, data, timeout_s=None):
        """See GrpcPort."""
        with socket.socket() as caller:
            caller.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            caller.connect(("127.0.0.1", self.server.port))
            caller.sendall(_request(method, data, timeout_s))
            yield


def _request(method, data, timeout_s=None, *headers):
    headers += (f"connect-timeout-ms: {round(1000 * timeout_s)}",) if timeout_s else ()
    kind = "application/connect+proto" if method.streams else "application/proto"
    body = http_calls.enveloped(data) if method.streams else data
    return http_calls.asked(body, method.path, *headers, kind=kind)


def _status(method, response):
    status, headers, body = response
    if headers["content-type"] == "application/json":
        return json.loads(body)["code"].upper()
    if not method.streams:
        return "OK" if status == 200 else f"HTTP {status}"
    *_, (flags, message) = http_calls.envelopes(body, lambda message: message)
    assert 2 == flags, "a stream without an end"
    return json.loads(message).get("error", {"code": "ok"})["code"].upper()
