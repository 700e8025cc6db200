"""How long a first token takes while other rows are written, through the engine."""

import asyncio
import time

import numpy as np

from loaded import Loaded, ask, golden_request
from weft_proto.v1 import common_pb2
from weft_server.loading.golden import verify_golden


def first_tokens(bundle, device, scale, num_rows):
    """Milliseconds until a lone request has its first token, and until one has it beside `num_rows` others.

    Before, the served model gives its golden answer.
    """
    return asyncio.run(_first_tokens(bundle, device, scale, num_rows))


async def _first_tokens(bundle, device, scale, num_rows):
    where = {"device": device.kind, "cuda_device": str(device.index), "cuda_graphs": device.captures}
    async with Loaded(bundle, slots=num_rows + 1, **where) as model:
        await verify_golden(model)
        text = " ".join(f"w{index}" for index in range(scale.prompt))
        alone = [await _seconds(model, text, 1) for _ in range(scale.asked)]
        stop = asyncio.Event()
        others = [asyncio.create_task(_write(model, stop, scale.num_new)) for _ in range(num_rows)]
        await asyncio.sleep(scale.seconds / 5)
        beside = [await _seconds(model, text, 1) for _ in range(scale.asked)]
        stop.set()
        await asyncio.gather(*others)
    return [
        {
            "beside_rows": rows,
            "median_ms": round(1e3 * float(np.median(times)), 2),
            "worst_ms": round(1e3 * max(times), 2),
        }
        for rows, times in ((0, alone), (num_rows, beside))
    ]


async def _write(model, stop, num_new):
    text = golden_request(model)["text"]
    while not stop.is_set():
        await _seconds(model, text, num_new)


async def _seconds(model, text, num_new):
    """Seconds of an answer of so many tokens."""
    decoding = common_pb2.Decoding(max_new_tokens=num_new, min_new_tokens=num_new)
    started = time.perf_counter()
    await ask(model, text=text, decoding=decoding)
    return time.perf_counter() - started
