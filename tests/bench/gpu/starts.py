"""What the first run of each shape costs, and which attention kernels the provider takes."""

import os
import re
import subprocess
import sys
import time

import numpy as np

from weft_server.engine.prefill_chunks import DEVICE_BUCKETS

# The provider prints it where a session's first runs choose.
_CHOSEN = re.compile(r"Operator=(\w+).*?SdpaKernel=(\w+)")
_PIECE = 64


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


def kernels(bundle, device):
    """Which kernels attend, by operator, as the provider says in a process of its own."""
    command = [sys.executable, __file__, str(bundle), device.kind, str(device.index)]
    environment = os.environ | {"ORT_ENABLE_ATTENTION_KERNEL_DEBUG_INFO": "1"}
    ended = subprocess.run(command, check=True, capture_output=True, text=True, env=environment)
    found = sorted(set(_CHOSEN.findall(ended.stdout + ended.stderr)))
    return [{"operator": operator, "kernel": kernel} for operator, kernel in found]


def _run_once(bundle, kind, index):
    """A prompt and a step, for what the provider says meanwhile."""
    from bare import Bare

    from weft_server.runtime.device import HOST, Device
    from weft_server.runtime.session import verify_device

    device = HOST if kind == "cpu" else Device(kind, index, in_place=False)
    verify_device(device)
    slots, runner = Bare(bundle, 1, 1, device).opened(2)
    runner.prefill(0, np.arange(4, 4 + _PIECE) % 60)
    slots.input_ids[:] = 5
    runner.decode(2)


if __name__ == "__main__":
    from pathlib import Path

    sys.path[:0] = [str(Path(__file__).parents[1])]
    _run_once(Path(sys.argv[1]), sys.argv[2], int(sys.argv[3]))
