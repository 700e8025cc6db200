"""The copy of the checkout in which mutants are tried."""

import shutil
import subprocess

from parts import ROOT

# What tests read of build/: a copy, because they write there as well.
_BUILT = ("envoy", "families", "models", "real", "tiny")


def copied(tree):
    """Bring the copy up to date: all that git knows or would know, as it is on the disk, and the bundles."""
    command = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    listed = subprocess.run(command, cwd=ROOT, check=True, capture_output=True)
    for name in listed.stdout.decode().split("\0"):
        if name and (ROOT / name).is_file():
            (tree / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(ROOT / name, tree / name, follow_symlinks=False)
    for name in _BUILT:
        if (ROOT / "build" / name).is_dir() and not (tree / "build" / name).exists():
            shutil.copytree(ROOT / "build" / name, tree / "build" / name, symlinks=True)
    if not (tree / ".venv").exists():
        (tree / ".venv").symlink_to(ROOT / ".venv")
    return tree
