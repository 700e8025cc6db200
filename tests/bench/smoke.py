"""`make bench-smoke`: what Weft costs around the model, in under two minutes. Figures, not tests.

Served and bare runs alternate and medians are compared, because a machine's speed drifts by more than what is measured.
"""

import asyncio
import datetime as dt
import json
import os
import platform
import statistics
import subprocess
import sys
import time
from pathlib import Path

# Run as a script: what the tests share lies beside and above.
TESTS = Path(__file__).parents[1]
sys.path[:0] = [str(TESTS / "bench"), str(TESTS), str(TESTS / "export")]

import grpc.aio
import onnxruntime
from bare import Bare, shares
from tiny import save_tiny

import weft
from process import ServerProcess
from weft_export.export import export_checkpoint
from weft_proto.v1 import classification_pb2, common_pb2

ROOT = Path(__file__).parents[2]
MODELS = ROOT / "build" / "models"
CONCURRENCY = 32
ROUNDS, SECONDS = 3, 3.0
NUM_NEW = 64
# (model, source or prompt as token ids, new tokens)
DECODERS = (("en-es", list(range(10, 20)), 24), ("pydocs", list(range(100, 116)), NUM_NEW))


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


async def served_tokens_per_s(target, model, source, num_new):
    """Tokens per second through gRPC, unary calls, every answer forced to `num_new` tokens."""
    decoding = weft.Decoding(max_new_tokens=num_new, min_new_tokens=num_new - 1)
    async with weft.AsyncClient(target) as client:
        ask = client.translate if model == "en-es" else client.generate

        async def call():
            answer = await ask(source, model=model, decoding=decoding)
            tokens.append(answer.usage.output_tokens)

        tokens = []
        await closed_loop(call, 0.5)
        tokens.clear()
        started = time.monotonic()
        await closed_loop(call, SECONDS)
        return sum(tokens) / (time.monotonic() - started)


async def calls_per_s(target, method, request):
    """Unary calls per second of one method with raw bytes, so that both servers get the same client."""
    async with grpc.aio.insecure_channel(target) as channel:
        stub = channel.unary_unary(method)
        await closed_loop(lambda: stub(request), 0.5)
        return await closed_loop(lambda: stub(request), SECONDS)


def measure_decoders(server):
    """For each decoder: served and bare tokens/s, their ratio, and the host's share of a step."""
    for name, source, num_new in DECODERS:
        bare = Bare(MODELS / name / "1", *shares())
        pairs = []
        for _ in range(ROUNDS):
            loop = bare.tokens_per_s(CONCURRENCY, source, num_new, SECONDS)
            pairs.append((asyncio.run(served_tokens_per_s(server.target, name, source, num_new)), loop))
        yield {
            "model": name,
            "concurrency": CONCURRENCY,
            "served_tokens_per_s": round(statistics.median(served for served, _ in pairs)),
            "bare_tokens_per_s": round(statistics.median(loop for _, loop in pairs)),
            "served_over_bare": round(statistics.median(served / loop for served, loop in pairs), 3),
            "host_us_per_step_at_32_rows": round(bare.host_us_per_step(32, source, num_new, rounds=10), 1),
        }


def measure_unary(repository):
    """Classify with a trivial model (16 wide, 26 words) against an echo of the same bytes."""
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
        "classify_over_echo": round(statistics.median(classify / echoed for classify, echoed in pairs), 3),
    }


def trivial_repository():
    """A repository with the smallest text classifier, exported once."""
    repository = ROOT / "build" / "bench" / "trivial"
    if not (repository / "trivial").is_dir():
        checkpoint = save_tiny("tiny-text", ROOT / "build" / "bench" / "checkpoint")
        export_checkpoint(checkpoint, repository / "trivial" / "1")
    return repository


def machine():
    """Where the figures come from."""
    names = [line for line in Path("/proc/cpuinfo").read_text().splitlines() if line.startswith("model name")]
    return {
        "date": dt.datetime.now(dt.UTC).date().isoformat(),
        "cpu": names[0].split(":")[1].strip() if names else platform.machine(),
        "cpus": len(os.sched_getaffinity(0)),
        "python": platform.python_version(),
        "onnxruntime": onnxruntime.__version__,
        "grpcio": grpc.__version__,
        "weft": weft.__version__,
        "load": os.getloadavg()[0],
    }


def main():
    """Measure, print lines that start with RESULT and a table."""
    print("RESULT", json.dumps({"machine": machine()}), flush=True)
    rows = []
    with ServerProcess(MODELS) as server:
        server.wait_for("ready")
        for result in measure_decoders(server):
            print("RESULT", json.dumps(result), flush=True)
            rows += [
                (result["model"], key, value) for key, value in result.items() if key not in ("model", "concurrency")
            ]
    result = measure_unary(trivial_repository())
    print("RESULT", json.dumps(result), flush=True)
    rows += [("trivial", key, value) for key, value in result.items() if key not in ("model", "concurrency")]
    print("\n| model | figure | value |\n|---|---|---|")
    for row in rows:
        print(f"| {row[0]} | {row[1].replace('_', ' ')} | {row[2]} |")


if __name__ == "__main__":
    main()
