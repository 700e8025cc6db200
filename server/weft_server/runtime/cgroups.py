"""Which control groups bind this process, in v2 and v1. See cgroups(7)."""

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
