"""A server that does nothing but answer, by one of three ways: what a call costs without a model. Prints its port.

`python http_servers.py connect|grpc|asgi`. The first two are Weft's own ports, with all that every call passes.
The last one is the smallest application of ASGI, on uvicorn with httptools: what it is asked goes back.
"""

import asyncio
import logging
import socket
import sys
from pathlib import Path

# Run as a script: what the tests share lies above.
sys.path[:0] = [str(Path(__file__).parents[1])]

import grpc.aio
import structlog

from http_calls import served
from intercepted import interceptor_of
from weft_proto.v1 import classification_pb2, common_pb2, generation_pb2
from weft_proto.v1.methods import METHODS
from weft_server.rpc.services import add_services

# Of a stream.
NUM_MESSAGES = 200
LABELS = classification_pb2.ClassifyResponse(labels=[{"label": "a", "score": 0.75}])
DELTA = generation_pb2.StreamGenerateResponse(delta=common_pb2.TextDelta(text=" word"))
FINAL = generation_pb2.StreamGenerateResponse(final=generation_pb2.GenerateResponse())


async def classify(_request, _call):
    """Always the same."""
    return LABELS


async def generate(_request, _call):
    """Messages one by one, each in a turn of the loop, as a model gives them."""
    for _ in range(NUM_MESSAGES - 1):
        await asyncio.sleep(0)
        yield DELTA
    yield FINAL


async def connect():
    """Weft's HTTP port."""
    async with served(Classify=classify, StreamGenerate=generate, access_log="errors") as server:
        print(server.port, flush=True)
        await asyncio.Event().wait()


async def by_grpc():
    """Weft's gRPC port: its interceptor and its services."""
    server = grpc.aio.server(interceptors=[interceptor_of(access_log="errors")])
    answers = dict.fromkeys(METHODS, classify) | {"StreamGenerate": generate}
    add_services(server, ("weft.v1.ClassificationService", "weft.v1.GenerationService"), answers)
    print(server.add_insecure_port("127.0.0.1:0"), flush=True)
    await server.start()
    await server.wait_for_termination()


async def echo(scope, receive, send):
    """The body, once or as the messages of a stream."""
    assert "http" == scope["type"]
    body, more = b"", True
    while more:
        event = await receive()
        body, more = body + event["body"], event["more_body"]
    headers = [(b"content-type", b"application/proto")]
    if "Stream" in scope["path"]:
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        for number in range(NUM_MESSAGES):
            await asyncio.sleep(0)
            await send({"type": "http.response.body", "body": body, "more_body": number < NUM_MESSAGES - 1})
        return
    headers.append((b"content-length", str(len(body)).encode()))
    await send({"type": "http.response.start", "status": 200, "headers": headers})
    await send({"type": "http.response.body", "body": body})


async def asgi():
    """The echo on uvicorn."""
    import uvicorn

    # One that says that it is of TCP. Otherwise asyncio leaves Nagle's algorithm on, and the body waits for 40 ms.
    listening = socket.socket(socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    listening.bind(("127.0.0.1", 0))
    config = uvicorn.Config(echo, http="httptools", loop="asyncio", lifespan="off", log_level="warning")
    print(listening.getsockname()[1], flush=True)
    await uvicorn.Server(config).serve([listening])


if __name__ == "__main__":
    # As a server has it by default: no line for each call.
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.INFO))
    asyncio.run({"connect": connect, "grpc": by_grpc, "asgi": asgi}[sys.argv[1]]())
