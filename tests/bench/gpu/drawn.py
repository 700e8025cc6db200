"""How many tokens a second rows get through the engine: the best token of each, or drawn ones."""

import asyncio
import time

from loaded import Loaded, ask
from weft_proto.v1 import common_pb2

_WAYS = {
    "greedy": None,
    "temperature 0.7, top-p 0.9": common_pb2.Sampling(temperature=0.7, top_p=0.9),
    "temperature 1, top-p 0.95": common_pb2.Sampling(temperature=1.0, top_p=0.95),
}


def drawn_rates(bundle, device, scale, *, captures):
    """One result for each way to choose and each number of rows."""
    return asyncio.run(_drawn_rates(bundle, device, scale, captures))


async def _drawn_rates(bundle, device, scale, captures):
    where = {} if device.kind == "cpu" else {"device": device.kind, "cuda_device": str(device.index)}
    results = []
    async with Loaded(bundle, slots=max(scale.in_flight), cuda_graphs=captures, **where) as model:
        for name, way in _WAYS.items():
            for rows in scale.in_flight:
                rate = await _rate(model, rows, way, scale)
                results.append({"choice": name, "in_flight": rows, "tokens_per_s": round(rate, 1)})
    return results


async def _rate(model, rows, way, scale):
    """Tokens a second of so many callers who each ask again as soon as they have an answer."""
    until = time.perf_counter() + scale.seconds
    text = " ".join(f"w{index}" for index in range(scale.prompt))
    count = 0

    async def caller():
        nonlocal count
        while time.perf_counter() < until:
            decoding = common_pb2.Decoding(max_new_tokens=scale.num_new, min_new_tokens=scale.num_new, sampling=way)
            await ask(model, text=text, decoding=decoding)
            count += scale.num_new

    started = time.perf_counter()
    await asyncio.gather(*(caller() for _ in range(rows)))
    return count / (time.perf_counter() - started)
