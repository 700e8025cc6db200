"""`make bench-families`: what each family costs: parameters, step times, state by length. Figures, not tests.

Two parts: every exported demo model as it is, and random models of one common size whose lengths go far. One thread,
and nothing around the model: sessions and slots as the server opens them.
"""

import json
import statistics
import sys
import time
from pathlib import Path

# Run as a script: what the tests share lies beside and above.
TESTS = Path(__file__).parents[1]
sys.path[:0] = [str(TESTS / "bench"), str(TESTS), str(TESTS / "export")]

import numpy as np
from bare import Bare
from common_size import CAPACITY, COMMON, common_bundle
from growth_plot import plot_growth
from machine import machine

from weft_proto.tasks import TASKS
from weft_proto.v1 import bundle_pb2, common_pb2
from weft_server.bundle.load import load_bundle
from weft_server.loading.longest_inputs import longest_source
from weft_server.runtime.session import Session
from weft_server.source import feeds_of

ROOT = Path(__file__).parents[2]
OUT = ROOT / "build" / "bench" / "families"
ROWS = (1, 32)
LENGTHS = (16, 32, 64, 128, 256, 511)
SECONDS, ROUNDS = 0.4, 5


def median_ms(run):
    """The median of a run's milliseconds over SECONDS, after some runs that nobody counts."""
    for _ in range(3):
        run()
    times, until = [], time.perf_counter() + SECONDS
    while time.perf_counter() < until or len(times) < 5:
        started = time.perf_counter()
        run()
        times.append(time.perf_counter() - started)
    return statistics.median(times) * 1e3


def state_bytes(manifest, length):
    """Bytes of state that a sequence of so many tokens needs, its source being as long (or the image's whole grid)."""
    total = 0
    for state in manifest.states:
        whole = int(np.prod(state.shape)) * (2 if manifest.precision == bundle_pb2.PRECISION_FP16 else 4)
        is_grid = state.kind == bundle_pb2.STATE_KIND_MEMORY and manifest.HasField("image")
        if state.kind != bundle_pb2.STATE_KIND_RECURRENT and not is_grid:
            capacity = state.shape[state.length_axis]
            whole = whole * min(length, capacity) // capacity
        total += whole
    return total


def step_ms(bare, num_rows, length):
    """A decode step of so many rows, each with `length` tokens behind it and a source as long."""
    text = bare.manifest.text
    source = a_source(bare.manifest, length)
    slots, runner = bare.opened(num_rows)
    slots.memory_lengths[:] = source.num_places
    if bare.encoder:
        runner.encode([source] * num_rows, range(num_rows))

    def step():
        slots.past_lengths[:] = min(length, text.max_total_tokens - 1)
        runner.decode(num_rows)

    return median_ms(step)


def a_source(manifest, most):
    """A picture, a window of a recording, or a text of at most so many tokens."""
    takes_image = TASKS[manifest.task].takes_image
    return longest_source(manifest, takes_image=takes_image, token_id=manifest.text.pad_id, most=most)


def reading_ms(directory, manifest, num_rows):
    """One run of the encoder or classifier over inputs of half the greatest length; None without one."""
    bundle = load_bundle(directory)
    # Of a model that matches, pictures: they are named last.
    graph = bundle.graph(max(TASKS[manifest.task].needs - {bundle_pb2.GRAPH_ROLE_DECODER}, default=0))
    if graph is None:
        return None
    one = a_source(manifest, max(1, manifest.text.max_source_tokens // 2))
    feeds = feeds_of([one] * num_rows, one.bucket, manifest.text.pad_id)
    session = Session(bundle.path(graph.path), 1)
    return median_ms(lambda: session.run(feeds))


def measure_model(directory):
    """The row of one exported model."""
    manifest = load_bundle(directory).manifest
    text = manifest.text
    result = {
        "model": directory.parent.name,
        "family": manifest.family,
        "task": common_pb2.Task.Name(manifest.task).removeprefix("TASK_").lower(),
        "parameters": manifest.provenance.num_parameters,
    }
    for num_rows in ROWS:
        result[f"reading_ms_{num_rows}"] = rounded(reading_ms(directory, manifest, num_rows))
    if manifest.states:
        bare = Bare(directory, 1, 1)
        half = text.max_total_tokens // 2
        for num_rows in ROWS:
            result[f"step_ms_{num_rows}"] = rounded(step_ms(bare, num_rows, half))
        result["state_bytes"] = state_bytes(manifest, half)
        result["state_at"] = half
    return result


def rounded(value):
    """Three significant digits."""
    return None if value is None else float(f"{value:.3g}")


def measure_growth(name):
    """State and step time of a family's common size by length."""
    directory = common_bundle(OUT / "common", name)
    bare = Bare(directory, 1, 1)
    return {
        "family": name,
        "parameters": bare.manifest.provenance.num_parameters,
        "lengths": LENGTHS,
        "state_bytes": [state_bytes(bare.manifest, length) for length in LENGTHS],
        **{f"step_ms_{rows}": rounds(bare, rows) for rows in ROWS},
    }


def rounds(bare, num_rows):
    """A step's time at each length: the median of ROUNDS rounds over all lengths, since a machine drifts."""
    passes = [[step_ms(bare, num_rows, length) for length in LENGTHS] for _ in range(ROUNDS)]
    return [rounded(statistics.median(times)) for times in zip(*passes, strict=True)]


def table(rows):
    """Markdown of dictionaries with the same keys, "-" where there is nothing."""
    keys = list(dict.fromkeys(key for row in rows for key in row))
    lines = ["| " + " | ".join(key.replace("_", " ") for key in keys) + " |", "|" + "---|" * len(keys)]
    lines += ["| " + " | ".join(cell(row.get(key)) for key in keys) + " |" for row in rows]
    return "\n".join(lines)


def cell(value):
    """A value for people."""
    if value is None:
        return "-"
    return f"{value:,}" if isinstance(value, int) else str(value)


def main():
    """Measure, print lines that start with RESULT and tables, and draw."""
    OUT.mkdir(parents=True, exist_ok=True)
    print("RESULT", json.dumps({"machine": machine()}), flush=True)
    models, growth = [], []
    for directory in sorted([*ROOT.glob("build/models/*/1"), *ROOT.glob("build/families/*/1")]):
        models.append(measure_model(directory))
        print("RESULT", json.dumps(models[-1]), flush=True)
    for name in COMMON:
        growth.append(measure_growth(name))
        print("RESULT", json.dumps(growth[-1]), flush=True)
    print("\n" + table(models) + "\n")
    for key in ("state_bytes", "step_ms_1", "step_ms_32"):
        rows = [{"family": each["family"], **dict(zip(map(str, LENGTHS), each[key], strict=True))} for each in growth]
        print(f"{key.replace('_', ' ')} by length, {CAPACITY} at most\n\n{table(rows)}\n")
    plot_growth(growth, OUT / "growth.png")
    print(f"drawn: {OUT / 'growth.png'}")


if __name__ == "__main__":
    main()
