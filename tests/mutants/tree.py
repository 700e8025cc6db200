"""The copy of the checkout in which mutants are tried."""

import shutil
import subprocess

from parts import ROOT

# What tests read of build/: a copy, because they write there as well.
_BUILT = ("envoy", "families", "models", "real", "tiny")


def copied(tree, *, anew, with_tests):
    """All that git knows or would know, as it is on the disk, and the bundles that tests read.

    `with_tests`: of a copy that is there the tests alone are made anew. Then the lines of the product stay those that
    were recorded.
    """
    if anew or not tree.exists():
        shutil.rmtree(tree, ignore_errors=True)
        _copy(tree, "")
        for name in _BUILT:
            if (ROOT / "build" / name).is_dir():
                shutil.copytree(ROOT / "build" / name, tree / "build" / name, symlinks=True)
        (tree / ".venv").symlink_to(ROOT / ".venv")
    elif with_tests:
        _copy(tree, "tests/")
    return tree


def _copy(tree, prefix):
    command = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    listed = subprocess.run(command, cwd=ROOT, check=True, capture_output=True)
    for name in listed.stdout.decode().split("\0"):
        if name.startswith(prefix) and (ROOT / name).is_file():
            (tree / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(ROOT / name, tree / name, follow_symlinks=False)
