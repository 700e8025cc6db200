"""The machine that a benchmark's figures come from."""

import datetime as dt
import os
import platform
import subprocess
from pathlib import Path

import grpc
import numpy as np
import onnxruntime

import weft

# What decides how fast a product is, where the processor has it.
_INSTRUCTIONS = ("avx2", "avx_vnni", "avx512f", "avx512_vnni", "avx512_bf16", "amx_bf16", "amx_int8", "asimddp", "i8mm")


def machine():
    """Where the figures come from, and which commit they are of."""
    cpu = _cpu()
    flags = cpu.get("flags", cpu.get("Features", "")).split()
    return {
        "date": dt.datetime.now(dt.UTC).date().isoformat(),
        "commit": _commit(),
        "cpu": cpu.get("model name", platform.machine()),
        "instructions": [name for name in _INSTRUCTIONS if name in flags],
        "cpus": len(os.sched_getaffinity(0)),
        "memory_gib": round(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30),
        "python": platform.python_version(),
        "numpy": np.__version__,
        "onnxruntime": onnxruntime.__version__,
        "grpcio": grpc.__version__,
        "weft": weft.__version__,
        "load": os.getloadavg()[0],
    }


def _cpu():
    """The first processor's lines of /proc/cpuinfo."""
    first = Path("/proc/cpuinfo").read_text().partition("\n\n")[0]
    return {name.strip(): value.strip() for name, _, value in (line.partition(":") for line in first.splitlines())}


def _commit():
    """The checked out commit, with a + if files differ from it; nothing without git."""
    command = ["git", "describe", "--always", "--exclude=*", "--dirty=+"]
    try:
        return subprocess.check_output(command, cwd=Path(__file__).parent, text=True, stderr=subprocess.DEVNULL).strip()
    except (OSError, subprocess.CalledProcessError):
        return None
