"""What the first run of each shape costs, and which attention kernels the provider takes."""

import os
import re
import subprocess
import sys
import time
from pathlib import Path

import numpy as np

from weft_server.engine.prefill_chunks import DEVICE_BUCKETS

# The provider prints it where a session's first runs choose.
_CHOSEN = re.compile(r"Operator=(\w+).*?SdpaKernel=(\w+)")
_STEPS = re.compile(r"^(step of \d+): (\S+) us$", re.MULTILINE)
_PIECE, _TIMES = 64, 10


def firsts(bare, prompt, num_rows):
    """Milliseconds of the first and the second run of each kind: pieces of a prompt, and steps of so many rows."""
    slots, runner = bare.opened(max(num_rows))
    results = []

    def time_twice(what, run):
        times = []
        for _ in range(2):
            slots.past_lengths[:] = 0
            started = time.perf_counter()
            run()
            times.append(round(1e3 * (time.perf_counter() - started), 3))
        results.append({"run": what, "first_ms": times[0], "second_ms": times[1]})

    for length in DEVICE_BUCKETS:
        if length <= len(prompt):
            time_twice(f"prompt of {length}", lambda length=length: runner.prefill(0, prompt[:length]))
    for rows in num_rows:
        time_twice(f"step of {rows}", lambda rows=rows: runner.decode(rows))
    return results


def kernels(bundle, device, *, settings, paged=False):
    """Which kernels attend, by operator, as the provider says in a process of its own; and how long a step takes.

    settings: of cuDNN's attention, "1" on and "0" off.
    """
    command = [sys.executable, __file__, str(bundle), device.kind, str(device.index), *(["paged"] if paged else [])]
    for setting in settings:
        environment = os.environ | {
            "ORT_ENABLE_ATTENTION_KERNEL_DEBUG_INFO": "1",
            "ORT_ENABLE_CUDNN_FLASH_ATTENTION": setting,
        }
        ended = subprocess.run(command, check=True, capture_output=True, text=True, env=environment)
        found = sorted(set(_CHOSEN.findall(ended.stdout + ended.stderr)))
        steps = dict(_STEPS.findall(ended.stdout))
        for operator, kernel in found or [("", "")]:
            yield {"cudnn_attention": setting, "operator": operator, "kernel": kernel, **steps}


def _run_once(bundle, kind, index, *caches):
    """A prompt and steps of few and of many rows, for what the provider says meanwhile, and how long those take."""
    from bare import Bare
    from block_steps import block_steps
    from pieces import FULL, SMALL

    from weft_server.runtime.device import HOST, Device
    from weft_server.runtime.session import verify_device

    device = HOST if kind == "cpu" else Device(kind, int(index), in_place=False)
    verify_device(device)
    bundle = Path(bundle)
    scale = (SMALL if "tiny" in bundle.parts[-2] else FULL)._replace(seconds=0.2)
    if caches:
        for result in block_steps(bundle, device, scale):
            print(f"step of {result['rows']}: {result['step_us']} us")
        return
    slots, runner = Bare(bundle, 1, 1, device).opened(max(scale.in_flight))
    runner.prefill(0, np.arange(4, 4 + _PIECE) % 60)
    slots.input_ids[:] = 5
    for rows in scale.in_flight:
        times = []
        for _ in range(_TIMES):
            slots.past_lengths[:] = _PIECE
            started = time.perf_counter()
            runner.decode(rows)
            times.append(time.perf_counter() - started)
        print(f"step of {rows}: {1e6 * float(np.median(times)):.1f} us")


if __name__ == "__main__":
    TESTS = Path(__file__).parents[2]
    sys.path[:0] = [str(TESTS / folder) for folder in ("bench/gpu", "bench", "bench/peers", "", "export")]
    _run_once(*sys.argv[1:])
