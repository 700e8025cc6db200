"""How many CPUs this process may use, which is not how many the machine has, and how lanes share them."""

import os
from pathlib import Path
from typing import NamedTuple

CGROUP_ROOT = Path("/sys/fs/cgroup")


class CpuShare(NamedTuple):
    """Engine lanes of each model and intra-op threads of each session; both at least 1."""

    lanes: int
    threads: int


def cpu_quota(root: Path = CGROUP_ROOT) -> float:
    """Return the CPUs this process may use: the smaller of its affinity mask and its cgroup's quota (v2, then v1)."""
    affinity = float(len(os.sched_getaffinity(0)))
    quota = _quota_v2(root / "cpu.max")
    if quota is None:
        quota = _quota_v1(root / "cpu")
    return affinity if quota is None else min(affinity, quota)


def share_cpus(lanes: int, threads: int, quota: float) -> CpuShare:
    """Fill in what is 0: as many lanes as whole CPUs, and as many threads as each lane's share of them."""
    cpus = max(1, int(quota))
    lanes = lanes or cpus
    return CpuShare(lanes, threads or max(1, cpus // lanes))


def _quota_v2(path: Path) -> float | None:
    """`cpu.max` holds "<quota> <period>" in microseconds, or "max <period>"."""
    try:
        quota, period = path.read_text().split()
        return None if quota == "max" else int(quota) / int(period)
    except (OSError, ValueError, ZeroDivisionError):
        return None


def _quota_v1(directory: Path) -> float | None:
    """Quota and period lie in two files; a quota of -1 is none."""
    try:
        quota = int((directory / "cpu.cfs_quota_us").read_text())
        period = int((directory / "cpu.cfs_period_us").read_text())
        return quota / period if quota > 0 else None
    except (OSError, ValueError, ZeroDivisionError):
        return None
