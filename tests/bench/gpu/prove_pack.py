"""`make prove-pack-gpu`: joins what `make pack-gpu` packed, with another Python and no network, and runs the bench.

The other machine is a folder here: a copy of what git tracks without checkpoints, the pack, and bundles that
`make rehearse-bench-gpu` has left. The stand-in lies where torch's CUDA libraries lie there, so the pack's own script
finds it. torch itself is not here: of the pieces, those are done that run bundles.
"""

import argparse
import os
import shutil
import subprocess
import sys
from pathlib import Path

from pack import THERE, WHERE, pins

ROOT = Path(__file__).parents[3]
PROOF = ROOT / "build" / "gpu-proof"
STANDIN = ROOT / "build" / "standin" / "lib"
BUNDLES = Path("build/bench/gpu/small")
MOST_PIECE_BYTES = 60 * 2**20
# What comes with torch, transformers and onnx on the other machine, and what these need themselves.
BROUGHT = [*sorted(THERE), "markupsafe", "ml-dtypes", "huggingface-hub", "protobuf", "typing-extensions", "click"]
BROUGHT += ["shellingham", "markdown-it-py", "mdurl", "pygments"]
PIECES = "kernels,plans,steps,captured,drawn,beside,blocks,blocks-kernels,blocks-captured,memory,ranking"
SHAPES = "tiny,tiny-shared,tiny-translator"


def main():
    """Make the other machine, and run the bench on it."""
    parser = argparse.ArgumentParser(prog="make prove-pack-gpu", description=__doc__.split("\n", 1)[0])
    parser.add_argument("--python", default="python3.12", help="the other machine's Python (default: python3.12)")
    parser.add_argument("--pieces", default=PIECES)
    arguments = parser.parse_args()
    pieces = sorted(WHERE.glob("site.*"))
    if not pieces or not (ROOT / BUNDLES).is_dir():
        sys.exit("there is nothing to prove: make pack-gpu and make rehearse-bench-gpu come first")
    largest = max(piece.stat().st_size for piece in pieces)
    if largest > MOST_PIECE_BYTES:
        sys.exit(f"a piece has {largest / 2**20:.0f} MiB, and 60 can be carried: make pack-gpu ARGS='--piece-mb 46'")
    shutil.rmtree(PROOF, ignore_errors=True)
    python = environment(arguments.python)
    clone = copied()
    # A network of its own has nobody else in it.
    alone = ["unshare", "--net", *([] if os.geteuid() == 0 else ["--map-root-user"])]
    bench = f"python3 tests/bench/gpu/bench.py --rehearse --minutes 60 --shapes {SHAPES} --pieces {arguments.pieces}"
    joined = f". build/gpu-pack/join.sh {PROOF}/joined && {bench}"
    own = {name: value for name, value in os.environ.items() if name not in {"PYTHONPATH", "LD_LIBRARY_PATH"}}
    ended = subprocess.run(
        [*alone, "bash", "-c", joined],
        cwd=clone,
        env=own | {"PATH": f"{python.parent}:/usr/bin:/bin"},
        check=False,
    )
    sys.exit(ended.returncode)


def environment(python):
    """Make the other machine's Python, with what is there already. Returns its path."""
    subprocess.run([python, "-m", "venv", str(PROOF / "venv")], check=True)
    own = PROOF / "venv" / "bin" / "python3"
    known = pins()
    wanted = [f"{name}=={known[name]}" for name in BROUGHT if name in known]
    install = [str(own), "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-deps"]
    subprocess.run([*install, *wanted], check=True)
    (packages,) = (PROOF / "venv" / "lib").glob("python3*/site-packages")
    # Where torch says that its CUDA libraries are.
    (packages / "torch").mkdir()
    (packages / "torch" / "__init__.py").touch()
    shutil.copytree(STANDIN, packages / "nvidia" / "cu13" / "lib", ignore=lambda *_: {".built"})
    return own


def copied():
    """Copy what git tracks, without checkpoints, the pack and the bundles. Returns the copy."""
    clone = PROOF / "clone"
    tracked = subprocess.check_output(["git", "ls-files", "--cached", "--others", "--exclude-standard"], cwd=ROOT)
    for name in tracked.decode().splitlines():
        if not name.startswith("export/checkpoints/") and (ROOT / name).is_file():
            (clone / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(ROOT / name, clone / name)
    shutil.copytree(WHERE, clone / WHERE.relative_to(ROOT))
    shutil.copytree(ROOT / BUNDLES, clone / BUNDLES)
    return clone


if __name__ == "__main__":
    main()
