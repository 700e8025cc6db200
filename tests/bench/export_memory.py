"""`make bench-export`: the peak memory of exporting a GPT of 1.3 billion parameters, as a multiple of its file.

It writes the checkpoint (5.2 GB in float32), exports it, prints the figures and removes both: 16 GB of disk are needed
meanwhile, and 13 GB of memory. Figures, not tests.
"""

import argparse
import json
import re
import shutil
import subprocess
import sys
import time
from pathlib import Path

# Run as a script: what the tests share lies beside and above.
TESTS = Path(__file__).parents[1]
sys.path[:0] = [str(TESTS / "bench"), str(TESTS / "export")]

import torch
from large_gpt import save_large_gpt
from machine import machine

from weft_export.families.gpt import GptConfig

OUT = TESTS.parent / "build" / "bench" / "export"
FULL = GptConfig(vocab_size=40000, max_tokens=128, d_model=2880, num_heads=30, d_ff=11520, num_layers=12)
SMALL = GptConfig(vocab_size=4000, max_tokens=128, d_model=512, num_heads=8, d_ff=2048, num_layers=4)
DTYPES = {"float32": torch.float32, "float16": torch.float16}


def main():
    """Write, export, print, remove."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--dtype", choices=DTYPES, default="float32", help="of the checkpoint's file")
    parser.add_argument("--precision", default="fp32", help="of the bundle")
    parser.add_argument("--max-tokens", type=int, default=FULL.max_tokens, help="prompt and answer together")
    parser.add_argument("--rehearse", action="store_true", help="with a small model, to see that it runs")
    arguments = parser.parse_args()
    shape = SMALL if arguments.rehearse else FULL
    config = GptConfig(**{**vars(shape), "max_tokens": arguments.max_tokens})
    shutil.rmtree(OUT, ignore_errors=True)
    try:
        print("MACHINE", json.dumps(machine()))
        print("RESULT", json.dumps(measured(config, arguments.dtype, arguments.precision)))
    finally:
        shutil.rmtree(OUT, ignore_errors=True)


def measured(config, dtype, precision):
    """The figures of one export, in a process of its own."""
    file_bytes = save_large_gpt(OUT / "checkpoint", config, DTYPES[dtype])
    command = [sys.executable, "-m", "weft_export", OUT / "checkpoint", OUT / "gpt" / "1", "--precision", precision]
    started = time.monotonic()
    made = subprocess.run([*map(str, command)], check=True, stdout=subprocess.PIPE, text=True).stdout
    print(made, end="")
    peak_bytes = int(re.search(r"peak memory (\d+) MB", made)[1]) * 10**6
    return {
        "config": vars(config),
        "dtype": dtype,
        "precision": precision,
        "file_mb": round(file_bytes / 1e6),
        "peak_mb": round(peak_bytes / 1e6),
        "peak_over_file": round(peak_bytes / file_bytes, 2),
        "seconds": round(time.monotonic() - started),
    }


if __name__ == "__main__":
    main()
