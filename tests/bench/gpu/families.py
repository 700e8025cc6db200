"""`make gpu-families`: does each tiny model say on a CUDA device what it says on the CPU? Plain, captured and served.

Bundles lie in build/gpu-families/<precision>/<name>/1. Those that are not there are exported first, at fp16 and bf16.
`--export-only` ends then: on a machine without a device, for one that has it. bf16 is held to the CPU's fp16.
"""

import argparse
import asyncio
import contextlib
import sys
import tempfile
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path

TESTS = Path(__file__).parents[2]
sys.path[:0] = [str(TESTS / folder) for folder in ("gpu/standin", "export", "")]

import driven
import test_families
import torch
from tiny import CHECKPOINTS

from loaded import Loaded
from weft_export.checkpoints.directory import save_checkpoint
from weft_export.export import export_checkpoint
from weft_export.options import ExportOptions
from weft_server.loading.golden import verify_golden
from weft_server.runtime.device import Device
from weft_server.runtime.session import verify_device

WHERE = TESTS.parent / "build" / "gpu-families"
MAKERS = {name: make for name, make in CHECKPOINTS.items() if name not in test_families.NOT_IN_HALF}
MAKERS |= {"long-t5": test_families.long_t5}
JOBS = [(name, "fp16") for name in MAKERS]
JOBS += [(name, "bf16") for name in MAKERS if name not in test_families.NOT_IN_BF16]
# Only the stand-in counts what a step does.
driven.counting = lambda: contextlib.nullcontext({})


def main():
    """Export what is missing, and say how far each model is from the CPU. The exit status is 1 if one is too far."""
    parser = argparse.ArgumentParser(prog="make gpu-families", description=__doc__.split("\n", 1)[0])
    parser.add_argument("--export-only", action="store_true")
    parser.add_argument("--only", nargs="+", metavar="NAME", choices=sorted(MAKERS), default=sorted(MAKERS))
    parser.add_argument("--processes", type=int, default=2)
    arguments = parser.parse_args()
    jobs = [job for job in JOBS if job[0] in arguments.only]
    num_far = 0
    with ProcessPoolExecutor(arguments.processes, get_context("spawn")) as pool:
        list(pool.map(export, jobs))
        for (name, precision), found in zip(jobs, () if arguments.export_only else pool.map(tried, jobs), strict=False):
            bound = test_families.TOLERANCE[precision]
            is_far = not all(isinstance(value, float) and value <= bound for value in found.values())
            num_far += is_far
            figures = ", ".join(f"{way} {value}" for way, value in found.items())
            print(f"{'FAR ' if is_far else ''}{name} {precision} (bound {bound}): {figures}", flush=True)
    sys.exit(num_far > 0)


def directory_of(name, precision):
    """Where a bundle lies."""
    return WHERE / precision / name / "1"


def export(job):
    """Export a tiny model in half precision, unless its bundle is there."""
    name, precision = job
    if (directory_of(name, precision) / "bundle.json").is_file():
        return
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as folder:
        checkpoint = test_families.calm(MAKERS[name](), test_families.CALM.get(name, 0.5))
        save_checkpoint(Path(folder) / name, checkpoint)
        export_checkpoint(Path(folder) / name, directory_of(name, precision), ExportOptions(precision=precision))


def tried(job):
    """How far a model on the device is from the CPU, by the way that it runs there, or why it failed."""
    name, precision = job
    known, directory = directory_of(name, "fp16"), directory_of(name, precision)
    found = {}
    ways = {"plain": False, "captured": True} if test_families.writes(directory) else {"plain": False}
    for way, cuda_graphs in ways.items():
        try:
            verify_device(Device("cuda", in_place=False))
            found[way] = distance(known, directory, cuda_graphs=cuda_graphs)
            asyncio.run(served(directory, cuda_graphs=cuda_graphs))
        except Exception as error:  # noqa: BLE001 - the others are tried all the same
            found[way] = f"failed: {type(error).__name__}: {error}"
    return found


def distance(known, directory, *, cuda_graphs):
    """The largest difference of what is said, as a share of its spread."""
    if test_families.writes(directory):
        one = driven.Writer(known).drive()
        other = driven.Writer(directory, device="cuda", cuda_graphs=cuda_graphs).drive()
        expected, actual = one.said + one.rows, other.said + other.rows
    else:
        expected, actual = driven.read_whole(known), driven.read_whole(directory, device="cuda")
    pairs = zip(expected, actual, strict=True)
    return round(max(driven.share_of_spread(one, other) for one, other in pairs), 4)


async def served(directory, *, cuda_graphs):
    """A server's model gives its golden answer."""
    async with Loaded(directory, slots=3, device="cuda", cuda_graphs=cuda_graphs) as model:
        await verify_golden(model)


if __name__ == "__main__":
    main()
