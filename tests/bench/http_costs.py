"""`make bench-http`: what a call costs by HTTP, over gRPC and over a bare application of ASGI. Figures, not tests.

The servers have one processor, and whoever asks has the other. All servers run all the time, and each is asked for half
a second before the next one is: a machine's speed drifts by more than what is measured. Ratios are of neighbours.
ARGS="--rounds 2" is a rehearsal. ARGS=costs, streams or heads measures one part.
"""

import argparse
import asyncio
import json
import os
import statistics
import subprocess
import sys
import time
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, NamedTuple

# Run as a script: what the tests share lies beside and above.
TESTS = Path(__file__).parents[1]
sys.path[:0] = [str(TESTS / "bench"), str(TESTS / "bench" / "peers"), str(TESTS), str(TESTS / "export")]

import grpc.aio
from http_beside import heads, streams
from http_servers import NUM_MESSAGES
from machine import machine
from pair import cpu_us
from smoke import trivial_repository

from http_calls import enveloped
from process import ServerProcess
from weft_bench.http_connection import HttpPool
from weft_proto.v1 import classification_pb2, common_pb2, generation_pb2
from weft_proto.v1.methods import METHODS

SECONDS, CALLERS = 0.5, 32
CLASSIFY = classification_pb2.ClassifyRequest(token_ids=common_pb2.TokenIds(ids=range(4, 12)))
STREAM = generation_pb2.StreamGenerateRequest(request={"text": "a"})
# What each figure is of: the method, and how many messages an answer has.
REQUESTS = {"request": ("Classify", CLASSIFY, 1), "streamed message": ("StreamGenerate", STREAM, NUM_MESSAGES)}


class Asked(NamedTuple):
    """A server, and how it is asked: "grpc", or a content type's last word."""

    pid: int
    target: str
    form: str


@contextmanager
def answering(kind):
    """A server of `http_servers`: its process id, and where it listens."""
    command = [sys.executable, str(Path(__file__).with_name("http_servers.py")), kind]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        try:
            yield process.pid, f"127.0.0.1:{int(process.stdout.readline())}"
        finally:
            process.kill()


def body_of(form, message, *, streams):
    """The content type and the body of a request by HTTP."""
    from google.protobuf import json_format

    data = json_format.MessageToJson(message, indent=None).encode() if form == "json" else message.SerializeToString()
    return f"application/{'connect+' if streams else ''}{form}", enveloped(data) if streams else data


async def ask_by_http(asked, name, message, until):
    """How many answers callers get who each wait for theirs."""
    kind, body = body_of(asked.form, message, streams=METHODS[name].streams)
    lines = ("host: localhost", f"content-type: {kind}", f"content-length: {len(body)}")
    head = "\r\n".join([f"POST {METHODS[name].path} HTTP/1.1", *lines, "", ""])
    pool, count = HttpPool(asked.target, None), 0

    async def caller():
        nonlocal count
        connection = await pool.take()
        while time.monotonic() < until:
            assert 200 == await connection.ask(head.encode() + body, lambda _: None)
            count += 1

    await asyncio.gather(*(caller() for _ in range(CALLERS)))
    pool.close()
    return count


async def ask_by_grpc(asked, name, message, until):
    """The same by gRPC."""
    count, data = 0, message.SerializeToString()
    async with grpc.aio.insecure_channel(asked.target) as channel:
        call: Any = channel.unary_stream if METHODS[name].streams else channel.unary_unary
        send = call(METHODS[name].path)

        async def caller():
            nonlocal count
            while time.monotonic() < until:
                if METHODS[name].streams:
                    async for _ in send(data):
                        pass
                else:
                    await send(data)
                count += 1

        await asyncio.gather(*(caller() for _ in range(CALLERS)))
    return count


def turn(asked, name, message):
    """Answers a second, and the server's CPU for each, in microseconds."""
    ask = ask_by_grpc if asked.form == "grpc" else ask_by_http
    began, before = time.monotonic(), cpu_us(asked.pid)
    count = asyncio.run(ask(asked, name, message, began + SECONDS))
    return count / (time.monotonic() - began), (cpu_us(asked.pid) - before) / count


def in_turn(servers, name, message, num_messages, rounds):
    """For each server: answers a second, us for each message, and both over the first server's, turn by turn."""
    turns = [{of: turn(asked, name, message) for of, asked in servers.items()} for _ in range(rounds + 1)][1:]
    first = next(iter(servers))
    for of in servers:
        yield {
            "server": of,
            "per_s": round(statistics.median(each[of][0] for each in turns)),
            "us": round(statistics.median(each[of][1] for each in turns) / num_messages, 1),
            "rate_over_first": round(statistics.median(each[of][0] / each[first][0] for each in turns), 3),
            "us_over_first": round(statistics.median(each[of][1] / each[first][1] for each in turns), 3),
        }


def costs(rounds, server_cpu, client_cpu):
    """What ports cost alone, and a trivial classifier behind them."""
    with ExitStack() as stack:
        os.sched_setaffinity(0, {server_cpu})
        found = {kind: stack.enter_context(answering(kind)) for kind in ("grpc", "connect", "asgi")}
        trivial = stack.enter_context(ServerProcess(trivial_repository(), api_port=0))
        os.sched_setaffinity(0, {client_cpu})
        trivial.wait_for("ready")
        empty = {
            "gRPC": Asked(*found["grpc"], "grpc"),
            "Connect, binary": Asked(*found["connect"], "proto"),
            "Connect, JSON": Asked(*found["connect"], "json"),
            "ASGI echo": Asked(*found["asgi"], "proto"),
        }
        for figure, (name, message, num_messages) in REQUESTS.items():
            for result in in_turn(empty, name, message, num_messages, rounds):
                yield {"of": f"{figure}, no model", **result}
        pid, api = trivial.process.pid, trivial.wait_for("listening")["api"]
        modelled = {
            "ASGI echo": empty["ASGI echo"],
            "Connect, binary": Asked(pid, api, "proto"),
            "Connect, JSON": Asked(pid, api, "json"),
            "gRPC": Asked(pid, trivial.target, "grpc"),
        }
        for result in in_turn(modelled, "Classify", CLASSIFY, 1, rounds):
            yield {"of": "Classify of a trivial model", **result}


PARTS = {"costs": costs, "streams": streams, "heads": heads}


def main():
    """Print lines that start with RESULT, and a table for each part."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("parts", nargs="*", choices=[*PARTS, []], help="default: all")
    parser.add_argument("--rounds", type=int, default=12, help="turns of each server, beside one that warms up")
    given = parser.parse_args()
    print("RESULT", json.dumps({"machine": machine()}), flush=True)
    cpus = sorted(os.sched_getaffinity(0))[:2]
    for part in given.parts or PARTS:
        rows = []
        for result in PARTS[part](given.rounds, *cpus):
            print("RESULT", json.dumps(result), flush=True)
            rows.append(result)
        print(f"\n| {' | '.join(rows[0])} |\n|{'---|' * len(rows[0])}")
        for row in rows:
            print(f"| {' | '.join(str(value) for value in row.values())} |")
        print(flush=True)


if __name__ == "__main__":
    main()
