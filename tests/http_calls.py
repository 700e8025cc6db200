"""A server of HTTP calls without models, and callers that speak HTTP/1.1 themselves."""

import asyncio
import json
import struct
from contextlib import asynccontextmanager
from types import SimpleNamespace

from prometheus_client.parser import text_string_to_metric_families

from intercepted import AUTHORITY, MAX_REQUEST_BYTES, SERVER, credentials_of, gate_of
from weft_proto.v1 import classification_pb2, common_pb2, generation_pb2
from weft_proto.v1.methods import METHODS, SERVICES
from weft_server.api.api_server import ApiServer
from weft_server.api.connect_protocol import connect_routes, refuse_unknown
from weft_server.auth.authorization import Authorization
from weft_server.config import ServerConfig
from weft_server.models.registry import ModelRegistry
from weft_server.telemetry.metrics import Metrics
from weft_server.telemetry.metrics_page import MetricsPage
from weft_server.transport.traffic import Traffic

CLASSIFY = METHODS["Classify"].path
STREAM = METHODS["StreamGenerate"].path
STREAMS = "application/connect+json"
ENVELOPE = struct.Struct(">BI")


async def classify(request, call):
    """A label that is the text."""
    call.name(request.request_id)
    return classification_pb2.ClassifyResponse(labels=[{"label": request.text}], request_id=call.request_id)


async def generate(request, call):
    """A delta for each letter, and the whole text."""
    for letter in request.request.text:
        yield generation_pb2.StreamGenerateResponse(delta=common_pb2.TextDelta(text=letter))
    completion = common_pb2.Completion(text=request.request.text)
    yield generation_pb2.StreamGenerateResponse(final=generation_pb2.GenerateResponse(completion=completion))


@asynccontextmanager
async def served(tmp_path=None, *, tls=False, mutual=False, tokens="", entries=(), traffic=None, routes=(), **more):
    """A server of HTTP calls: its port, gate, metrics, credentials.

    `more`: settings, answers by method, `refuse` for what has no route, and `recent` for what is refused.
    """
    refuse, recent = more.pop("refuse", refuse_unknown), more.pop("recent", None)
    answers = {"Classify": classify, "StreamGenerate": generate}
    answers |= {name: more.pop(name) for name in list(more) if name in METHODS}
    settings = {"host": "127.0.0.1", "api_port": 0, "access_log": "all", **more}
    if tokens:
        settings["tokens"] = tmp_path / "tokens"
        settings["tokens"].write_text(tokens)
        settings["tokens"].chmod(0o600)
    if tls or mutual:
        settings["tls_cert"], settings["tls_key"] = SERVER.write(tmp_path)
    if mutual:
        settings["tls_client_ca"] = tmp_path / "ca.crt"
        settings["tls_client_ca"].write_bytes(AUTHORITY.certificate)
    config, metrics = ServerConfig(repository="models", **settings), Metrics()
    credentials = credentials_of(metrics, **settings)
    traffic = traffic or Traffic(max_message_bytes=MAX_REQUEST_BYTES, max_connections=config.max_connections)
    models = ModelRegistry(list(entries))
    gate = gate_of(metrics, models, traffic, config.access_log, recent, config.tenant_key)
    access = Authorization(credentials)
    routes = [*connect_routes(SERVICES, config.max_request_bytes), *routes]
    server = ApiServer(config, gate, access, credentials, answers, routes, refuse)
    server.start()
    try:
        yield SimpleNamespace(port=server.port, gate=gate, metrics=metrics, credentials=credentials, server=server)
    finally:
        await server.stop(1)


@asynccontextmanager
async def connected(server, host="127.0.0.1", **more):
    """A connection: its two ends."""
    reader, writer = await asyncio.open_connection(host, server.port, **more)
    try:
        yield reader, writer
    finally:
        writer.close()


def head(path=CLASSIFY, *headers, method="POST", version="1.1", kind="application/json"):
    """The head of a request as bytes."""
    lines = [f"{method} {path} HTTP/{version}", "host: localhost", f"content-type: {kind}", *headers]
    return ("\r\n".join(lines) + "\r\n\r\n").encode()


def asked(body=b'{"text": "hi"}', path=CLASSIFY, *headers, **more):
    """A whole request as bytes."""
    return head(path, f"content-length: {len(body)}", *headers, **more) + body


def enveloped(message, flags=0):
    """A message in an envelope."""
    return ENVELOPE.pack(flags, len(message)) + message


def envelopes(body, read=json.loads):
    """(flags, message) of each envelope in a body. `read` makes it of its bytes."""
    found = []
    while body:
        flags, size = ENVELOPE.unpack_from(body)
        found.append((flags, read(body[ENVELOPE.size : ENVELOPE.size + size])))
        body = body[ENVELOPE.size + size :]
    return found


async def response(reader):
    """(status, headers, body) of the next response on a connection. Raises IncompleteReadError for half of one."""
    lines = (await reader.readuntil(b"\r\n\r\n")).decode().split("\r\n")
    headers = dict(line.lower().split(": ", 1) for line in lines[1:-2])
    status = int(lines[0].split()[1])
    if headers.get("transfer-encoding") == "chunked":
        body = b""
        while size := int(await reader.readline(), 16):
            body += (await reader.readexactly(size + 2))[:-2]
        await reader.readline()
    elif "content-length" in headers:
        body = await reader.readexactly(int(headers["content-length"]))
    else:
        body = b"" if status == 204 else await reader.read()
    return status, headers, body


async def ask(server, data, **more):
    """(status, headers, body) of a request on a connection of its own."""
    async with connected(server, **more) as (reader, writer):
        writer.write(data)
        return await asyncio.wait_for(response(reader), 60)


def counted(server, name="weft_requests_total", label="code"):
    """How many calls ended with each status."""
    families = text_string_to_metric_families(MetricsPage(server.metrics).render()[1].decode())
    samples = [sample for family in families for sample in family.samples if sample.name == name]
    return {sample.labels[label]: sample.value for sample in samples if sample.value}


def rejected(server):
    """How many calls ended with each reason."""
    return counted(server, "weft_rejected_total", "reason")


async def reason(server, data, **more):
    """(status, reason) of a request that is refused."""
    status, _, body = await ask(server, data, **more)
    return status, json.loads(body)["details"][0]["debug"]["reason"]
