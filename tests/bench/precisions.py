"""A decode step at each precision for a CPU: CPU time of one thread, and ratios to int8 of the same round."""

import statistics
import sys
import time
from pathlib import Path

ROOT = Path(__file__).parents[2]
sys.path[:0] = [str(ROOT / "tests" / "export"), str(ROOT / "tests" / "bench" / "peers")]

from bare import Bare
from machine import machine
from shapes import llama

from weft_export.checkpoints.directory import save_checkpoint
from weft_export.export import export_checkpoint
from weft_export.options import ExportOptions

PRECISIONS = ("fp32", "int8", "int8-weights", "int4", "nf4")
ROWS = (1, 8, 32)
OUT = ROOT / "build" / "bench" / "precisions"
ROUNDS, STEPS, WARM = 9, 12, 3
SOURCE = list(range(40, 104))


def bundle_of(precision):
    """The bundle of Llama's shape at a precision, exported once."""
    bundle = OUT / precision / "llama" / "1"
    if not bundle.is_dir():
        if not (OUT / "checkpoint").is_dir():
            save_checkpoint(OUT / "checkpoint", llama())
        report = export_checkpoint(
            OUT / "checkpoint", bundle, ExportOptions(precision=precision, no_explain=True, no_score=True)
        )
        print(precision, f"{report.size_bytes / 1e6:.1f} MB, {report.seconds:.0f} s", flush=True)
    return bundle


def step_ms(bare, num_rows):
    """The CPU time of a step of so many rows, median of STEPS."""
    slots, runner = bare.filled(num_rows, SOURCE)
    spent = []
    for _ in range(WARM + STEPS):
        started = time.thread_time()
        runner.decode(slots.num_slots)
        spent.append((time.thread_time() - started) * 1e3)
    return statistics.median(spent[WARM:])


def main():
    """Print a line for each number of rows and each precision."""
    opened = {precision: Bare(bundle_of(precision), 1, 1) for precision in PRECISIONS}
    print(machine(), flush=True)
    for num_rows in ROWS:
        rounds = []
        for index in range(ROUNDS):
            order = PRECISIONS if index % 2 else PRECISIONS[::-1]
            taken = {precision: step_ms(opened[precision], num_rows) for precision in order}
            rounds.append(taken)
        for precision in PRECISIONS:
            times = sorted(taken[precision] for taken in rounds)
            ratios = sorted(taken["int8"] / taken[precision] for taken in rounds)
            middle = len(rounds) // 2
            print(
                f"{num_rows:3} rows {precision:13} {times[middle]:8.2f} ms ({times[0]:.2f} to {times[-1]:.2f}),"
                f" int8's speed times {ratios[middle]:.2f} ({ratios[0]:.2f} to {ratios[-1]:.2f})",
                flush=True,
            )


if __name__ == "__main__":
    main()
