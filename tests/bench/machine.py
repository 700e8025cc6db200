"""The machine that a benchmark's figures come from."""

import datetime as dt
import os
import platform
from pathlib import Path

import grpc
import onnxruntime

import weft


def machine():
    """Where the figures come from."""
    names = [line for line in Path("/proc/cpuinfo").read_text().splitlines() if line.startswith("model name")]
    return {
        "date": dt.datetime.now(dt.UTC).date().isoformat(),
        "cpu": names[0].split(":")[1].strip() if names else platform.machine(),
        "cpus": len(os.sched_getaffinity(0)),
        "python": platform.python_version(),
        "onnxruntime": onnxruntime.__version__,
        "grpcio": grpc.__version__,
        "weft": weft.__version__,
        "load": os.getloadavg()[0],
    }
