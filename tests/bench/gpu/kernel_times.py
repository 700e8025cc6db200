"""Which of the device's kernels a decode step spends its time in, as CUPTI tells torch's profiler."""

import re
import time
from collections import Counter

_LARGEST = 12
_STEPS = 20


def missing_profiler():
    """Why kernels cannot be timed here, or nothing."""
    import torch

    return "" if torch.cuda.is_available() else "torch has no CUDA"


def kernel_times(bare, prompt, num_rows):
    """One result for all kernels of a step, and one for each of the largest; microseconds of one step."""
    import torch
    from torch.profiler import ProfilerActivity, profile

    torch.cuda.init()
    for rows in num_rows:
        slots, runner = bare.filled(rows, prompt)
        past = slots.past_lengths.copy()
        for _ in range(3):
            runner.decode(rows, captures=True)
        wall = _steps(slots, runner, rows, past)
        with profile(activities=[ProfilerActivity.CUDA]) as profiled:
            _steps(slots, runner, rows, past)
        spans = [
            (event.time_range.start, event.time_range.end, short_name(event.name))
            for event in profiled.events()
            if event.device_type == torch.autograd.DeviceType.CUDA
        ]
        yield from _shares(rows, wall, spans)


def short_name(kernel):
    """A kernel's name without what its templates were given, and without its namespaces."""
    name = kernel.removeprefix("void ")
    while name != (name := re.sub(r"<[^<>]*>", "", name)):
        pass
    return name.split("(")[0].split("::")[-1][:60]


def _steps(slots, runner, rows, past):
    """Microseconds of a step, of which each feeds what the last one chose."""
    slots.past_lengths[:] = past
    started = time.perf_counter()
    for _ in range(_STEPS):
        slots.input_ids[:, 0] = runner.decode(rows).topk_ids[:, 0]
    return 1e6 * (time.perf_counter() - started) / _STEPS


def _shares(rows, wall, spans):
    busy, end = 0.0, float("-inf")
    for start, stop, _ in sorted(spans):
        busy += max(0.0, stop - max(start, end))
        end = max(end, stop)
    head = {"in_flight": rows, "step_us": round(wall, 1)}
    yield head | {"kernel": "all", "times": len(spans) / _STEPS, "us": round(busy / _STEPS, 1)}
    times, counts = Counter(), Counter()
    for start, stop, name in spans:
        times[name] += stop - start
        counts[name] += 1
    for name, spent in times.most_common(_LARGEST):
        yield head | {"kernel": name, "times": counts[name] / _STEPS, "us": round(spent / _STEPS, 1)}
