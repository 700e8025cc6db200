"""What the SDK takes for a channel of gRPC, and speaks the Connect protocol by HTTP. And a stream of OpenAI's API."""

import asyncio
import base64
import json
import socket
import struct
from contextlib import aclosing

import grpc
import grpc.aio
from google.rpc import status_pb2

import weft
from weft._verbs.table import methods_on

_ENVELOPE = struct.Struct(">BI")
_END = 2
# Connections that are kept for the next call, until a rest.
MAX_IDLE = 4
# Bytes that a slow reader takes before it reads.
NARROW = 4096
_CODES = {code.name: code for code in grpc.StatusCode} | {"CANCELED": grpc.StatusCode.CANCELLED}


class HttpClient(weft.AsyncClient):
    """The SDK's client, whose calls go by HTTP to `api`."""

    def __init__(self, target, api, *, is_narrow=False, **more):
        self._connections = Connections(api, is_narrow=is_narrow)
        super().__init__(target, **more)

    def _connect(self):
        super()._connect()
        self._methods = self._methods_of_all = methods_on(_Channel(self._connections))

    async def complete(self, model, prompt, max_tokens, request_id):
        """Yield the pieces of a text, by OpenAI's API."""
        fields = {"model": model, "prompt": prompt, "max_tokens": max_tokens, "stream": True}
        headers = ["content-type: application/json", f"x-request-id: {request_id}"]
        async with aclosing(self._connections.post("/v1/completions", headers, json.dumps(fields).encode())) as chunks:
            assert 200 == await anext(chunks)
            async for chunk in chunks:
                data = chunk.decode().removeprefix("data: ").strip()
                if data == "[DONE]":
                    return
                yield json.loads(data)["choices"][0]["text"]
        raise AssertionError("a stream without an end")

    def rest(self):
        """End the connections that wait for a call: how many there are is chance, and the server counts its files."""
        self._connections.close()

    async def aclose(self):
        """End the connections."""
        self.rest()

    async def __aexit__(self, *error):
        await self.aclose()
        await super().__aexit__(*error)


class Connections:
    """Those to one port. Some are kept open."""

    def __init__(self, api, *, is_narrow):
        host, _, port = api.rpartition(":")
        self._address, self._is_narrow, self._idle = (host, int(port)), is_narrow, []

    async def post(self, path, headers, body):
        """Yield the status of the response, and its body: each chunk, or the whole. Who stops early hangs up."""
        reader, writer = await self._take()
        lines = [f"POST {path} HTTP/1.1", f"host: {self._address[0]}", f"content-length: {len(body)}", *headers]
        is_whole = False
        try:
            writer.write("\r\n".join([*lines, "", ""]).encode() + body)
            first, *rest = (await reader.readuntil(b"\r\n\r\n")).decode().lower().split("\r\n")
            found = dict(line.split(": ", 1) for line in rest if line)
            yield int(first.split()[1])
            if "content-length" in found:
                data = await reader.readexactly(int(found["content-length"]))
                is_whole = "connection" not in found
                yield data
                return
            while size := int(await reader.readline(), 16):
                data = await reader.readexactly(size + 2)
                yield data[:-2]
            await reader.readline()
            is_whole = "connection" not in found
        finally:
            if is_whole and len(self._idle) < MAX_IDLE:
                self._idle.append((reader, writer))
            else:
                writer.close()

    async def _take(self):
        while self._idle:
            reader, writer = self._idle.pop()
            if not reader.at_eof():
                return reader, writer
            writer.close()
        if not self._is_narrow:
            return await asyncio.open_connection(*self._address)
        narrow = socket.socket()
        narrow.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, NARROW)
        narrow.setblocking(False)
        await asyncio.get_running_loop().sock_connect(narrow, self._address)
        return await asyncio.open_connection(sock=narrow, limit=NARROW)

    def close(self):
        """End those that are kept."""
        while self._idle:
            self._idle.pop()[1].close()


class _Channel:
    """Makes what calls a method, as a channel of gRPC does."""

    def __init__(self, connections):
        self._connections = connections

    def unary_unary(self, path, request_serializer, response_deserializer, **_):
        """A method that answers once."""

        async def ask(body, headers):
            async with aclosing(self._connections.post(path, headers, body)) as parts:
                status, data = [each async for each in parts]
            if status != 200:
                raise _error(json.loads(data))
            return response_deserializer(data)

        def begin(request, timeout, metadata):
            headers = _headers("application/proto", timeout, metadata)
            return _in_time(asyncio.wait_for(ask(request_serializer(request), headers), timeout))

        return begin

    def unary_stream(self, path, request_serializer, response_deserializer, **_):
        """A method that answers with a stream."""

        def begin(request, timeout, metadata):
            data = request_serializer(request)
            body = _ENVELOPE.pack(0, len(data)) + data
            headers = _headers("application/connect+proto", timeout, metadata)
            return _Stream(self._connections.post(path, headers, body), response_deserializer, timeout)

        return begin


class _Stream:
    """A call that answers with a stream, as gRPC has it."""

    def __init__(self, parts, read, timeout_s):
        self._parts, self._read = parts, read
        self._until = asyncio.get_running_loop().time() + timeout_s
        self._reading, self._is_begun = None, False

    async def read(self):
        """The next message, or EOF. Raises grpc.RpcError."""
        self._reading = asyncio.ensure_future(_in_time(self._next()))
        return await self._reading

    async def _next(self):
        async with asyncio.timeout_at(self._until):
            if not self._is_begun:
                assert 200 == await anext(self._parts)
                self._is_begun = True
            data = await anext(self._parts)
        flags, size = _ENVELOPE.unpack_from(data)
        assert size == len(data) - _ENVELOPE.size, "a chunk that is no envelope"
        if flags != _END:
            return self._read(data[_ENVELOPE.size :])
        said = json.loads(data[_ENVELOPE.size :])
        if "error" in said:
            raise _error(said["error"])
        # So that the connection is there for the next one.
        assert [] == [each async for each in self._parts]
        return grpc.aio.EOF

    def cancel(self):
        """Hang up."""
        if self._reading and not self._reading.done():
            self._reading.cancel()
        self._closing = asyncio.ensure_future(self._parts.aclose()) if not self._parts.ag_running else None


async def _in_time(call):
    try:
        return await call
    except TimeoutError:
        raise grpc.aio.AioRpcError(
            grpc.StatusCode.DEADLINE_EXCEEDED, grpc.aio.Metadata(), grpc.aio.Metadata(), "Deadline Exceeded"
        ) from None


def _headers(kind, timeout_s, metadata):
    milliseconds = max(1, round(1000 * timeout_s))
    return [f"content-type: {kind}", f"connect-timeout-ms: {milliseconds}", *(f"{k}: {v}" for k, v in metadata or ())]


def _error(said):
    status = status_pb2.Status()
    for each in said["details"]:
        value = each["value"]
        detail = status.details.add(type_url=f"type.googleapis.com/{each['type']}")
        detail.value = base64.b64decode(value + "=" * (-len(value) % 4))
    trailing = grpc.aio.Metadata(("grpc-status-details-bin", status.SerializeToString()))
    return grpc.aio.AioRpcError(_CODES[said["code"].upper()], grpc.aio.Metadata(), trailing, said["message"])
