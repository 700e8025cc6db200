"""How much memory this process may still take, and which control groups bind it."""

from __future__ import annotations

import ctypes
from pathlib import Path

CGROUP_ROOT = Path("/sys/fs/cgroup")
# Which group of each hierarchy this process is in. A line is "<number>:<controllers>:<path>", without controllers in
# v2.
CGROUPS = Path("/proc/self/cgroup")


def group_paths(groups: Path) -> dict[str, str]:
    """The path of this process's group for each controller. In v2 one group is for all, under the empty name."""
    try:
        lines = [line.split(":", 2) for line in groups.read_text().splitlines() if line.count(":") >= 2]
    except OSError:
        return {}
    return {name: path for _, names, path in lines for name in names.split(",")}


def upwards(root: Path, path: str) -> list[Path]:
    """Each directory from the group's up to the root's. A container may be told a path that only its host has."""
    parts = [part for part in path.split("/") if part not in ("", "..")]
    return [root.joinpath(*parts[:number]) for number in range(len(parts), -1, -1)]


MEMINFO = Path("/proc/meminfo")
# Which files say a group's limit and its use. Without a limit, v1 says a number that is larger than any memory.
_V2 = ("memory.max", "memory.current")
_V1 = ("memory.limit_in_bytes", "memory.usage_in_bytes")


def free_memory(root: Path = CGROUP_ROOT, groups: Path = CGROUPS, meminfo: Path = MEMINFO) -> int | None:
    """Return the bytes this process may still take, or None where the system does not say.

    It is the least of what the machine has available and of what each of its cgroups (v2 or v1) has left. Pages of
    files count as free: the system gives them up.
    """
    paths = group_paths(groups)
    left = [_left(directory, _V2, "") for directory in upwards(root, paths.get("", ""))]
    left += [_left(directory, _V1, "total_") for directory in upwards(root / "memory", paths.get("memory", ""))]
    known = [each for each in (_available(meminfo), *left) if each is not None]
    return max(0, min(known)) if known else None


def give_back() -> None:
    """Return to the system what was freed. glibc keeps it otherwise, other C libraries do not know the call."""
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
    if trim:
        trim(0)


def _available(meminfo: Path) -> int | None:
    """`MemAvailable:   123 kB`, since Linux 3.14."""
    kib = _fields(meminfo).get("MemAvailable:")
    return None if kib is None else kib << 10


def _left(directory: Path, names: tuple[str, str], prefix: str) -> int | None:
    """What a group has left, by its limit's and its use's file, and the prefix of what its statistics sum up."""
    limit, used = (_number(directory / name) for name in names)
    if limit is None or used is None:
        return None
    stat = _fields(directory / "memory.stat")
    return limit - used + stat.get(f"{prefix}active_file", 0) + stat.get(f"{prefix}inactive_file", 0)


def _number(path: Path) -> int | None:
    """The number in a file. In v2 `max` means no limit."""
    try:
        return int(path.read_text())
    except (OSError, ValueError):
        return None


def _fields(path: Path) -> dict[str, int]:
    """What a file says in lines of a name and a number."""
    try:
        lines = [line.split() for line in path.read_text().splitlines()]
        return {line[0]: int(line[1]) for line in lines if len(line) >= 2 and line[1].isdigit()}
    except OSError:
        return {}
