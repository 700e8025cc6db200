"""How many CPUs this process may use, which may be fewer than the machine has, and how lanes share them."""

import os
import sys
import threading
from pathlib import Path
from typing import NamedTuple

from weft_server.runtime.memory import CGROUP_ROOT, CGROUPS, group_paths, upwards

# Of nice(2): ten steps are a tenth of the CPU, where two threads want it all.
_LESS = 10


class CpuShare(NamedTuple):
    """Lanes of each model, and intra-op threads of each session. Both are at least 1."""

    lanes: int
    threads: int


def cpu_quota(root: Path = CGROUP_ROOT, groups: Path = CGROUPS) -> float:
    """Return the CPUs this process may use: the least of its affinity mask and the quotas of its cgroup (v2 or v1).

    A group is bound by the groups above it too. In a container that is mostly the root. Under systemd it is a slice of
    slices.
    """
    paths = group_paths(groups)
    quotas = [_quota_v2(directory) for directory in upwards(root, paths.get("", ""))]
    quotas += [_quota_v1(directory) for directory in upwards(root / "cpu", paths.get("cpu", ""))]
    return min([float(len(os.sched_getaffinity(0))), *(quota for quota in quotas if quota is not None)])


def loading_places(quota: float) -> int:
    """Return how many models load at a time.

    Each takes a CPU, and for a while more memory than in the end. Never one: a slow model shall not hold up others.
    """
    return min(4, max(2, int(quota)))


def share_cpus(lanes: int, threads: int, quota: float) -> CpuShare:
    """Fill in what is 0: as many lanes as whole CPUs, and as many threads as each lane's share of them."""
    cpus = max(1, int(quota))
    lanes = lanes or cpus
    return CpuShare(lanes, threads or max(1, cpus // lanes))


def give_way() -> None:
    """Let this thread run while others leave CPUs, from now on, and also the threads that it starts.

    It cannot be taken back. Systems other than Linux have no such thing for one thread.
    """
    if sys.platform == "linux":
        thread = threading.get_native_id()
        os.setpriority(os.PRIO_PROCESS, thread, min(19, os.getpriority(os.PRIO_PROCESS, thread) + _LESS))


def _quota_v2(directory: Path) -> float | None:
    """`cpu.max` holds "<quota> <period>" in microseconds, or "max <period>"."""
    try:
        quota, period = (directory / "cpu.max").read_text().split()
        return None if quota == "max" else int(quota) / int(period)
    except (OSError, ValueError, ZeroDivisionError):
        return None


def _quota_v1(directory: Path) -> float | None:
    """Quota and period lie in two files. A quota of -1 means none."""
    try:
        quota = int((directory / "cpu.cfs_quota_us").read_text())
        period = int((directory / "cpu.cfs_period_us").read_text())
        return quota / period if quota > 0 else None
    except (OSError, ValueError, ZeroDivisionError):
        return None
