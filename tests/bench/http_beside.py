"""Two parts of `make bench-http` with real models: streams at once, and callers of gRPC beside slow heads of HTTP."""

import json
import os
import socket
import statistics
import subprocess
import sys
import threading
import time
from contextlib import contextmanager
from pathlib import Path

from process import ServerProcess

WEFT = Path(sys.executable).with_name("weft")
MODELS = Path(__file__).parents[2] / "build" / "models"
NUM_STREAMS, NUM_HEADS = 32, 1000
STREAMS = ("--model", "pydocs", "--input-tokens", "16", "--output-tokens", "64", "-c", str(NUM_STREAMS))
BESIDE = ("--model", "topics", "--input-tokens", "16", "-c", "4")
SECONDS = 3
# A slow caller sends a byte so often. The server ends it after ten seconds, and it comes again.
BYTE_S = 1.0
HEAD = b"POST /weft.v1.ClassificationService/Classify HTTP/1.1\r\nhost: localhost\r\nx-slow: "


def bench(target, *options):
    """The report of a `weft bench` of one load."""
    command = [WEFT, "bench", "-t", target, *options, "--duration", str(SECONDS), "--warmup", "0.3", "--json"]
    said = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, check=True)
    return json.loads(said.stdout)


@contextmanager
def serving(server_cpu, client_cpu, **settings):
    """A real server with both ports, on a processor of its own."""
    os.sched_setaffinity(0, {server_cpu})
    with ServerProcess(MODELS, api_port=0, **settings) as server:
        os.sched_setaffinity(0, {client_cpu})
        server.wait_for("ready")
        yield server, server.wait_for("listening")["api"]


def streams(rounds, server_cpu, client_cpu):
    """Streams at once by gRPC and by HTTP, in turn: what all get, and what each sees."""
    with serving(server_cpu, client_cpu) as (server, api):
        ways = {"gRPC": (server.target,), "Connect, binary": (api, "--http", "proto"),
                "Connect, JSON": (api, "--http", "json"), "OpenAI": (api, "--http", "openai")}  # fmt: skip
        turns = [{of: bench(*way, *STREAMS) for of, way in ways.items()} for _ in range(max(1, rounds // 3))]
    rates = {of: [each[of]["per_s"]["output_tokens"] for each in turns] for of in ways}
    for of in ways:
        gaps = [each[of]["latency"]["gap"] for each in turns]
        yield {
            "of": f"{NUM_STREAMS} streams at once",
            "way": of,
            "tokens_per_s": round(statistics.median(rates[of])),
            "over_grpc": round(statistics.median(a / b for a, b in zip(rates[of], rates["gRPC"], strict=True)), 3),
            "ttft_p50_ms": round(1e3 * statistics.median(each[of]["latency"]["ttft"]["p50"] for each in turns), 1),
            "gap_p50_ms": round(1e3 * statistics.median(gap["p50"] for gap in gaps), 1),
            "gap_p99_ms": round(1e3 * statistics.median(gap["p99"] for gap in gaps), 1),
        }


def heads(rounds, server_cpu, client_cpu):
    """Callers of gRPC alone, and beside connections that send the heads of requests a byte at a time."""
    with serving(server_cpu, client_cpu, max_connections=NUM_HEADS + 100) as (server, api):
        turns = []
        for _ in range(max(1, rounds // 3)):
            alone = bench(server.target, *BESIDE)
            with slow_heads(api) as num_open:
                beside = bench(server.target, *BESIDE)
                turns.append((alone["latency"]["e2e"], beside["latency"]["e2e"], num_open()))
    for name in ("p50", "p99", "max"):
        yield {
            "of": f"Classify by gRPC, {name}",
            "alone_ms": round(1e3 * statistics.median(alone[name] for alone, _, _ in turns), 2),
            "beside_ms": round(1e3 * statistics.median(beside[name] for _, beside, _ in turns), 2),
            "ratio": round(statistics.median(beside[name] / alone[name] for alone, beside, _ in turns), 2),
            "heads_open": min(num_open for _, _, num_open in turns),
        }


@contextmanager
def slow_heads(target):
    """Callers who never say all of a head. Gives what counts those that are connected."""
    host, _, port = target.rpartition(":")
    stop, callers = threading.Event(), [_connected(host, int(port)) for _ in range(NUM_HEADS)]

    def go_on():
        while not stop.wait(BYTE_S):
            for number, caller in enumerate(callers):
                try:
                    caller.send(b"x")
                except OSError:
                    caller.close()
                    callers[number] = _connected(host, int(port))

    thread = threading.Thread(target=go_on)
    thread.start()
    time.sleep(BYTE_S)
    try:
        yield lambda: sum(caller.fileno() >= 0 for caller in callers)
    finally:
        stop.set()
        thread.join()
        for caller in callers:
            caller.close()


def _connected(host, port):
    caller = socket.create_connection((host, port))
    caller.sendall(HEAD)
    return caller
