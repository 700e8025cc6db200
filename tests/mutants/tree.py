"""The copy of the checkout in which mutants are tried."""

import shutil
import subprocess
from pathlib import Path

from parts import ROOT

# What tests read of build/: a copy, because they write there as well.
_BUILT = ("envoy", "families", "models", "real", "tiny")


def copied(tree: Path, *, anew: bool) -> Path:
    """All that git knows or would know, as it is on the disk, and the bundles that tests read."""
    if tree.exists() and not anew:
        return tree
    shutil.rmtree(tree, ignore_errors=True)
    listed = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"], cwd=ROOT, check=True, capture_output=True
    )
    for name in listed.stdout.decode().split("\0"):
        if name and (ROOT / name).is_file():
            (tree / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(ROOT / name, tree / name, follow_symlinks=False)
    for name in _BUILT:
        if (ROOT / "build" / name).is_dir():
            shutil.copytree(ROOT / "build" / name, tree / "build" / name, symlinks=True)
    (tree / ".venv").symlink_to(ROOT / ".venv")
    return tree
