"""`make bench-gpu` where there is no GPU: it says so, and its script can be rehearsed."""

import json
import re
import subprocess
import sys
from pathlib import Path

import onnxruntime
import pytest

ROOT = Path(__file__).parents[2]


def bench(*arguments):
    """Run the script; its exit status and output."""
    command = [sys.executable, str(ROOT / "tests/bench/gpu.py"), *arguments]
    ended = subprocess.run(command, check=False, capture_output=True, text=True, cwd=ROOT)
    return ended.returncode, ended.stdout


@pytest.mark.skipif("CUDAExecutionProvider" in onnxruntime.get_available_providers(), reason="there is CUDA")
def test_without_cuda_it_says_so():
    """One sentence and exit status 2, which no measurement has."""
    status, output = bench()

    assert 2 == status
    assert output.startswith("bench-gpu needs a CUDA device, and there is none: ")


@pytest.mark.slow
def test_it_can_be_rehearsed():
    """On the CPU with a tiny model it holds parity, finds every answer the same alone, and prints its results."""
    status, output = bench("--rehearse")
    lines = dict(re.findall(r"^([A-Z]+) ({.*})$", output, re.MULTILINE))
    agreement, parity = json.loads(lines["AGREEMENT"]), json.loads(lines["PARITY"])

    assert 0 == status
    assert agreement["of"] == agreement["same_answers"]
    assert 0 < parity["largest_difference"] <= parity["bound"]
    assert {"in_flight", "tokens_per_s", "step_us", "share_of_bandwidth"} <= set(json.loads(lines["RESULT"]))
