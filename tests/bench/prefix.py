"""`make bench-prefix`: time to the first token of a prompt whose beginning the prefix cache has. Figures, not tests.

A model of Llama's shape in this process, one lane of one thread, one request at a time: a beginning of 256 tokens, and
16 of one's own. Four kinds of requests take turns, because a machine's speed drifts: without a cache; with one, for the
first time, the second time (which keeps what it reads), and from then on. Medians, of CPU time too.
"""

import argparse
import asyncio
import json
import shutil
import statistics
import sys
import time
from contextlib import AsyncExitStack, aclosing
from dataclasses import replace
from pathlib import Path

# Run as a script: what the tests share lies beside and above.
TESTS = Path(__file__).parents[1]
sys.path[:0] = [str(TESTS / "bench"), str(TESTS / "bench" / "peers"), str(TESTS), str(TESTS / "export")]

import numpy as np
from machine import machine
from shapes import LIVELY, LLAMA_VOCAB, llama
from tiny_parts import randomised

from loaded import Loaded
from weft_export.checkpoints.directory import save_checkpoint
from weft_export.export import export_checkpoint
from weft_export.options import ExportOptions
from weft_proto.v1 import bundle_pb2, common_pb2
from weft_server.models.request_context import RequestContext
from weft_server.requests.generate import Completed, complete
from weft_server.source import Ids

OUT = TESTS.parent / "build" / "bench" / "prefix"
BEGINNING, OWN, POSITIONS = 256, 16, 320
SERVED = {"lanes": 1, "threads": 1, "slots": 4}
CACHE_MB = 256


def main():
    """Export once, measure, print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--precision", choices=["fp32", "int8"], nargs="+", default=["fp32", "int8"])
    arguments = parser.parse_args()
    print("MACHINE", json.dumps(machine()))
    for precision in arguments.precision:
        figures = asyncio.run(measured(bundle(precision), arguments.rounds))
        print("RESULT", json.dumps({"precision": precision, "beginning": BEGINNING, "own": OWN, **figures}))


def bundle(precision):
    """A bundle of the peer benchmark's generator, with room for the prompts."""
    made = OUT / precision / "llama" / "1"
    if not made.is_dir():
        checkpoint = llama()
        text = bundle_pb2.TextSpec()
        text.CopyFrom(checkpoint.text)
        text.max_total_tokens = POSITIONS
        model = randomised(type(checkpoint.model)(replace(checkpoint.model.config, max_tokens=POSITIONS)), LIVELY)
        shutil.rmtree(OUT / "checkpoint", ignore_errors=True)
        save_checkpoint(OUT / "checkpoint", replace(checkpoint, model=model, text=text))
        export_checkpoint(OUT / "checkpoint", made, ExportOptions(precision=precision, no_explain=True))
        shutil.rmtree(OUT / "checkpoint")
    return made


async def measured(directory, rounds):
    """Milliseconds of each kind of request, on the clock and of CPU."""
    rng = np.random.default_rng(0)
    async with AsyncExitStack() as stack:
        plain = await stack.enter_async_context(Loaded(directory, **SERVED))
        cached = await stack.enter_async_context(Loaded(directory, prefix_cache_mb=CACHE_MB, **SERVED))
        kinds = {"no cache": [], "first": [], "second": [], "warm": []}
        for _ in range(rounds):
            beginning = rng.integers(4, LLAMA_VOCAB, BEGINNING)
            for kind, took in kinds.items():
                own = rng.integers(4, LLAMA_VOCAB, OWN)
                took.append(await first_token(plain if kind == "no cache" else cached, [*beginning, *own]))
                assert BEGINNING * (kind == "warm") == took[-1][2]
        held = cached.metrics.prefix_cache_bytes.value
    figures = {}
    for kind, took in kinds.items():
        clock, cpu, _ = zip(*took, strict=True)
        figures[kind] = {"ms": median(clock), "cpu_ms": median(cpu), "least_cpu_ms": round(min(cpu), 1)}
    return {**figures, "bytes_of_256_tokens": round(held / len(kinds["warm"]))}


async def first_token(model, ids):
    """(milliseconds, milliseconds of CPU, cached tokens) of an answer of one token."""
    started, cpu = time.perf_counter(), time.process_time()
    decoding = common_pb2.Decoding(max_new_tokens=1)
    async with aclosing(complete(RequestContext("bench"), model, Ids(np.array(ids)), decoding)) as events:
        answer = await anext(events)
    assert isinstance(answer, Completed)
    return (time.perf_counter() - started) * 1e3, (time.process_time() - cpu) * 1e3, answer.num_cached_tokens


def median(values):
    """To a tenth."""
    return round(statistics.median(values), 1)


if __name__ == "__main__":
    main()
