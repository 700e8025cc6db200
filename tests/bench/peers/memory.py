"""The most memory that a tree of processes had resident, from /proc. Standard library only."""

from pathlib import Path


def tree(root):
    """The process ids of `root` and all its descendants."""
    children = {}
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            # The name, in brackets, may hold anything; the parent is the second field after it.
            parent = int(stat.read_text().rpartition(")")[2].split()[1])
        except OSError:
            continue  # gone meanwhile
        children.setdefault(parent, []).append(int(stat.parent.name))
    found = [root]
    for pid in found:
        found += children.get(pid, ())
    return found


def reset_peak(root):
    """Let the peak of each process of the tree begin at what it has now."""
    for pid in tree(root):
        try:
            Path(f"/proc/{pid}/clear_refs").write_text("5")
        except OSError:
            continue  # gone, or not permitted: then the peak is that of its whole life


def peak_mb(root):
    """The sum of the peaks (VmHWM) of the tree's processes, in MB of 10^6 bytes."""
    total = 0
    for pid in tree(root):
        try:
            lines = Path(f"/proc/{pid}/status").read_text().splitlines()
        except OSError:
            continue
        total += sum(int(line.split()[1]) * 1024 for line in lines if line.startswith("VmHWM:"))
    return round(total / 1e6)
