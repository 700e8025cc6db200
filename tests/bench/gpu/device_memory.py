"""What a model takes of a device's memory, from weights to the last run before it is ready, and what it leaves."""

import asyncio
import gc
import math

from loaded import Loaded
from weft_server.bundle.load import load_bundle
from weft_server.loading.golden import verify_golden
from weft_server.runtime.cudart import free_on

_MB = 1e6


def held(bundle, device, num_slots):
    """Megabytes of a device: what weights and slots are by themselves, and the rest, which runs took."""
    return [asyncio.run(_held(bundle, device, num_slots))]


async def _held(bundle, device, num_slots):
    manifest = load_bundle(bundle).manifest
    # A process's first model brings what CUDA and its libraries take for themselves.
    async with Loaded(bundle, slots=1, device=device.kind, cuda_device=str(device.index)):
        pass
    gc.collect()
    before = free_on(device)
    where = {"device": device.kind, "cuda_device": str(device.index), "cuda_graphs": device.captures}
    async with Loaded(bundle, slots=num_slots, **where) as model:
        await verify_golden(model)
        ready = free_on(device)
        del model
    gc.collect()
    left = before - free_on(device)
    weights = sum(path.stat().st_size for path in bundle.glob("*.data"))
    # Caches and memories are float16 or bfloat16.
    slots = num_slots * sum(2 * math.prod(state.shape) for state in manifest.states)
    taken = before - ready
    return {
        "slots": num_slots,
        "taken_mb": round(taken / _MB, 1),
        "weights_mb": round(weights / _MB, 1),
        "slots_mb": round(slots / _MB, 1),
        "rest_mb": round((taken - weights - slots) / _MB, 1),
        "left_behind_mb": round(left / _MB, 1),
    }
