"""`make pack-gpu`: packs what a machine with torch lacks to run Weft on its GPU, where no package index is reached.

The pack has ONNX Runtime for CUDA, and the server's small packages, for another Python than this one. torch, with its
CUDA libraries, transformers, onnx, tokenizers and numpy have to be there. Of ONNX Runtime's kernels it has those for
one architecture. It lies in pieces beside `join.sh`, which unpacks them.
"""

import argparse
import mmap
import re
import shutil
import subprocess
import sys
import tarfile
import tomllib
from pathlib import Path

from fatbin import keep

ROOT = Path(__file__).parents[3]
WHERE = ROOT / "build" / "gpu-pack"
PROVIDER = "onnxruntime/capi/libonnxruntime_providers_cuda.so"
# Of what the server needs, what comes with torch, transformers and onnx.
THERE = {"numpy", "tokenizers", "pillow", "onnx", "jinja2", "prometheus-client", "rich", "typer"}
# What the server's packages need themselves. Packages are fetched without their needs, which would bring torch's again.
BELOW = ["annotated-types", "cffi", "pycparser", "pydantic_core", "python-dotenv", "typing-inspection"]


def main():
    """Fetch, thin out, and pack."""
    arguments = read_arguments()
    site = WHERE / "site"
    shutil.rmtree(WHERE, ignore_errors=True)
    fetch(site, arguments.python)
    with (site / PROVIDER).open("r+b") as file, mmap.mmap(file.fileno(), 0) as data:
        print(f"{keep(data, arguments.arch) / 1e6:.0f} MB of other devices' code are zeros now")
    pieces = pack(site, arguments.piece_mb * 10**6)
    shutil.rmtree(site)
    shutil.copy(Path(__file__).with_name("join.sh"), WHERE)
    print(f"{WHERE}: {len(pieces)} pieces, {sum(piece.stat().st_size for piece in pieces) / 1e6:.0f} MB")


def read_arguments():
    """What the command line asks for."""
    parser = argparse.ArgumentParser(prog="make pack-gpu", description=__doc__.split("\n", 1)[0])
    parser.add_argument("--python", default="3.12", help="the other machine's Python (default: 3.12)")
    parser.add_argument("--arch", type=int, default=90, help="its device's compute capability (default: 90, Hopper)")
    parser.add_argument("--piece-mb", type=int, default=46, help="the size of a piece, at most (default: 46)")
    return parser.parse_args()


def requirements():
    """Name each package to fetch, as constraints.txt pins it. ONNX Runtime for CUDA has the version of the CPU's."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    wanted = [*project["dependencies"], *project["optional-dependencies"]["serve-core"], *BELOW]
    names = {re.split(r"[<>=\[]", each, maxsplit=1)[0] for each in wanted} - THERE
    known = pins()
    return [
        *(f"{name}=={known[name.replace('_', '-')]}" for name in sorted(names)),
        f"onnxruntime-gpu=={known['onnxruntime']}",
    ]


def pins():
    """Return the version of each package that constraints.txt pins, by its name in lower case, with hyphens."""
    lines = re.findall(r"^([\w.-]+)==(\S+)", (ROOT / "constraints.txt").read_text(), re.MULTILINE)
    return {name.lower().replace("_", "-"): version for name, version in lines}


def fetch(site, python):
    """Put the packages into a folder, and Weft's own metadata, by which it knows its version."""
    pip = [sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--target", str(site)]
    platforms = ["--platform", "manylinux_2_28_x86_64", "--platform", "manylinux2014_x86_64"]
    only = ["--no-deps", "--only-binary", ":all:", "--python-version", python, *platforms]
    subprocess.run([*pip, *only, *requirements()], check=True)
    wheels = WHERE / "wheels"
    build = [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--no-build-isolation", "-w", str(wheels)]
    subprocess.run([*build, str(ROOT)], check=True)
    (wheel,) = wheels.glob("*.whl")
    shutil.unpack_archive(wheel, wheels / "weft", "zip")
    (metadata,) = (wheels / "weft").glob("*.dist-info")
    shutil.copytree(metadata, site / metadata.name)
    shutil.rmtree(wheels)


def pack(site, piece_bytes):
    """Pack a folder, in pieces. Returns their paths, in order."""
    archive = WHERE / "site.tar.xz"
    with tarfile.open(archive, "w:xz", preset=6) as tar:
        tar.add(site, site.name, filter=lambda entry: None if "__pycache__" in entry.name else entry)
    pieces = []
    with archive.open("rb") as file:
        while data := file.read(piece_bytes):
            pieces.append(WHERE / f"site.{len(pieces):02}")
            pieces[-1].write_bytes(data)
    archive.unlink()
    return pieces


if __name__ == "__main__":
    main()
