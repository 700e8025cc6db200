"""`make bench-smoke`: what Weft costs around the model, in under two minutes. Figures, not tests.

Served and bare runs alternate and medians are compared, because a machine's speed drifts by more than what is measured.
"""

import asyncio
import json
import statistics
import subprocess
import sys
import time
from pathlib import Path
from typing import NamedTuple

# Run as a script: what the tests share lies beside and above.
TESTS = Path(__file__).parents[1]
sys.path[:0] = [str(TESTS / "bench"), str(TESTS / "bench" / "peers"), str(TESTS), str(TESTS / "export")]

import grpc.aio
from bare import Bare, shares
from machine import machine
from prepare import prepare
from systems import WEIGHTS
from tiny import save_tiny

import weft
from process import ServerProcess
from weft_export.export import export_checkpoint
from weft_proto.v1 import classification_pb2, common_pb2

ROOT = Path(__file__).parents[2]
MODELS = ROOT / "build" / "models"
CONCURRENCY = 32
ROUNDS, SECONDS = 3, 1.2


class Load(NamedTuple):
    """What a decoder is asked: a source or prompt as token ids, and how many new tokens, for so many seconds."""

    model: str
    source: list[int]
    num_new: int
    seconds: float


SMALL = (Load("en-es", list(range(10, 20)), 24, SECONDS), Load("pydocs", list(range(100, 116)), 64, SECONDS))
# The translator of the peer benchmark, of Transformer-base's shape.
BASE = (Load("translation", list(range(10, 34)), 32, 3.5),)


async def closed_loop(call, seconds):
    """Calls per second with CONCURRENCY callers that each wait for their answer."""
    until, count = time.monotonic() + seconds, 0

    async def caller():
        nonlocal count
        while time.monotonic() < until:
            await call()
            count += 1

    started = time.monotonic()
    await asyncio.gather(*(caller() for _ in range(CONCURRENCY)))
    return count / (time.monotonic() - started)


async def served_tokens_per_s(target, load):
    """Tokens per second through gRPC, unary calls, every answer forced to its length."""
    decoding = weft.Decoding(max_new_tokens=load.num_new, min_new_tokens=load.num_new - 1)
    async with weft.AsyncClient(target) as client:
        ask = client.generate if load.model == "pydocs" else client.translate

        async def call():
            answer = await ask(load.source, model=load.model, decoding=decoding)
            tokens.append(answer.usage.output_tokens)

        tokens = []
        await closed_loop(call, 0.5)
        tokens.clear()
        started = time.monotonic()
        await closed_loop(call, load.seconds)
        return sum(tokens) / (time.monotonic() - started)


async def calls_per_s(target, method, request, seconds=SECONDS):
    """Unary calls per second of one method with raw bytes, so that both servers get the same client."""
    async with grpc.aio.insecure_channel(target) as channel:
        stub = channel.unary_unary(method)
        await closed_loop(lambda: stub(request), 0.5)
        return await closed_loop(lambda: stub(request), seconds)


def measure_decoders(repository, loads):
    """For each decoder: served and bare tokens/s, their ratio, and the host's share of a step."""
    with ServerProcess(repository) as server:
        server.wait_for("ready")
        for load in loads:
            yield measure_decoder(server, Bare(repository / load.model / "1", *shares()), load)


def measure_decoder(server, bare, load):
    """Bare and served in turn.

    `bare` only decodes. `same work` reads each source or prompt too, as the server must: what it gains is overhead.
    """
    bares, works, served = [], [], []
    for _ in range(ROUNDS):
        for reads, found in ((False, bares), (True, works)):
            found.append(bare.tokens_per_s(CONCURRENCY, load.source, load.num_new, load.seconds, reads=reads))
        served.append(asyncio.run(served_tokens_per_s(server.target, load)))
    return {
        "model": load.model,
        "concurrency": CONCURRENCY,
        "served_tokens_per_s": round(statistics.median(served)),
        "bare_tokens_per_s": round(statistics.median(bares)),
        "same_work_tokens_per_s": round(statistics.median(works)),
        "served_over_bare": ratio(served, bares),
        "served_over_same_work": ratio(served, works),
        "host_us_per_step_at_32_rows": round(bare.host_us_per_step(32, load.source, load.num_new, rounds=2), 1),
    }


def ratio(ours, theirs):
    """The median of the ratios of neighbouring runs."""
    return round(statistics.median(our / their for our, their in zip(ours, theirs, strict=True)), 3)


def measure_unary(repository):
    """Classify with a trivial model (32 wide, 26 words) against an echo of the same bytes."""
    request = classification_pb2.ClassifyRequest(token_ids=common_pb2.TokenIds(ids=range(4, 12))).SerializeToString()
    with ServerProcess(repository) as server:
        server.wait_for("ready")
        return compare_with_echo(server, request)


def compare_with_echo(server, request):
    """Calls per second of Classify and of an echo, in turn."""
    command = [sys.executable, str(Path(__file__).with_name("echo.py"))]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as echo:
        try:
            target = f"127.0.0.1:{int(echo.stdout.readline())}"
            pairs = []
            for _ in range(ROUNDS):
                echoed = asyncio.run(calls_per_s(target, "/bench.Echo/Echo", request))
                classify = "/weft.v1.ClassificationService/Classify"
                pairs.append((asyncio.run(calls_per_s(server.target, classify, request)), echoed))
        finally:
            echo.kill()
    return {
        "model": "trivial",
        "concurrency": CONCURRENCY,
        "classify_per_s": round(statistics.median(classify for classify, _ in pairs)),
        "echo_per_s": round(statistics.median(echoed for _, echoed in pairs)),
        "classify_over_echo": ratio(*zip(*pairs, strict=True)),
    }


def trivial_repository():
    """A repository with the smallest text classifier, exported once."""
    repository = ROOT / "build" / "bench" / "trivial"
    if not (repository / "trivial").is_dir():
        checkpoint = save_tiny("tiny-text", ROOT / "build" / "bench" / "checkpoint")
        export_checkpoint(checkpoint, repository / "trivial" / "1")
    return repository


def main():
    """Measure, print lines that start with RESULT and a table."""
    print("RESULT", json.dumps({"machine": machine()}), flush=True)
    if not prepare("translation", "fp32", keep=False):
        sys.exit("bench-smoke has no translator to measure")
    base = WEIGHTS / "translation" / "weft-fp32"
    decoders = (*measure_decoders(base, BASE), *measure_decoders(MODELS, SMALL))
    rows = []
    for result in (*decoders, measure_unary(trivial_repository())):
        print("RESULT", json.dumps(result), flush=True)
        rows += [(result["model"], key, value) for key, value in result.items() if key not in ("model", "concurrency")]
    print("\n| model | figure | value |\n|---|---|---|")
    for row in rows:
        print(f"| {row[0]} | {row[1].replace('_', ' ')} | {row[2]} |")


if __name__ == "__main__":
    main()
