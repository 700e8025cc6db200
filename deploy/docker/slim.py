"""Takes out of the image's environment what serving never opens: `python slim.py EXTRAS`, by that environment's Python.

It is downloaders, tests, test data, tools and a library of other packages: 120 of 350 MB.
"""

import importlib.metadata
import shutil
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

# What a package asks for, and the server's use of it does not: tokenizers are read from files, and not downloaded.
NOT_ASKED = {("tokenizers", "huggingface-hub")}
# Without them a virtual environment installs nothing more, so they go last: by themselves, in the Dockerfile.
TOOLS = {"pip", "setuptools"}
# Folders of packages, below site-packages.
FOLDERS = (
    # Tests of every operator, with their data.
    "onnx/backend/test",
    # A second, slow runtime.
    "onnx/reference",
    # They change and make models.
    "onnxruntime/datasets",
    "onnxruntime/quantization",
    "onnxruntime/tools",
    "onnxruntime/transformers",
    # Tests that numpy installs with itself.
    "numpy/**/tests",
    # They build extensions. From Python 3.12 on, numpy has one of them.
    *(["numpy/distutils"] if sys.version_info < (3, 12) else []),
    "numpy/f2py",
)
# The runtime once more, for programs in C: Python's module has it in itself.
FILES = ("onnxruntime/capi/libonnxruntime.so.*",)


def needed(distribution: str, extras: Iterable[str], left: set[tuple[str, str]] = NOT_ASKED) -> set[str]:
    """Return the names of what a distribution needs here with these extras, and of what that needs, itself included."""
    found: set[tuple[str, str]] = set()
    waiting = [(canonicalize_name(distribution), extra) for extra in ("", *extras)]
    while waiting:
        name, extra = waiting.pop()
        if (name, extra) in found:
            continue
        found.add((name, extra))
        for text in importlib.metadata.requires(name) or ():
            asked = Requirement(text)
            other = canonicalize_name(asked.name)
            if (asked.marker is None or asked.marker.evaluate({"extra": extra})) and (name, other) not in left:
                waiting += [(other, each) for each in ("", *asked.extras)]
    return {str(name) for name, _ in found}


def main(extras: str) -> None:
    """Uninstall what nothing needs, and remove the folders."""
    kept = needed("weft-serving", extras.split(",")) | TOOLS
    here = {str(canonicalize_name(each.metadata["Name"])) for each in importlib.metadata.distributions()}
    if unneeded := sorted(here - kept):
        subprocess.run([sys.executable, "-m", "pip", "uninstall", "--yes", "--quiet", *unneeded], check=True)
        print("uninstalled", *unneeded)
    site = Path(importlib.metadata.distribution("numpy").locate_file(""))
    for pattern in (*FOLDERS, *FILES):
        found = [path for path in site.glob(pattern) if path.is_dir() or pattern in FILES]
        for path in found:
            if path.is_dir():
                shutil.rmtree(path, ignore_errors=True)
            else:
                path.unlink()
        if not found:
            raise SystemExit(f"there is no {pattern} in {site}: mend the list of slim.py")
    print("removed", *FOLDERS, *FILES)


if __name__ == "__main__":
    main(sys.argv[1])
