"""`make bench-gpu`: the first hour on a CUDA device, in pieces of under ten minutes. Figures, not tests.

Each piece answers one question about one model, in a process of its own, and leaves a file. A run does the pieces that
have none yet, until its minutes are over. So it can be cut off and started again. All files together make a dated page.

`--day` does all of them in the order of their worth, for who has a device for a day, or for an hour. What was found
lies in results.tar.gz too. docs/benchmarks has the pages of the first times on a GPU.

`--rehearse` runs the pieces with small models: on the stand-in for a GPU where that is loaded
(`make rehearse-bench-gpu`), and otherwise in the CPU's memory, which the host then does not touch. What a rehearsal
measures means nothing.
"""

import argparse
import json
import os
import subprocess
import sys
import tarfile
import time
from itertools import product
from pathlib import Path

# Run as a script: what the tests share lies beside and above.
TESTS = Path(__file__).parents[2]
sys.path[:0] = [str(TESTS / folder) for folder in ("bench/gpu", "bench", "bench/peers", "", "export")]

import onnxruntime
from machine import machine
from page import write_page
from pieces import DAY, FULL, PIECES, SMALL, Place
from shapes import SHAPES

from weft_server.config import ConfigError
from weft_server.runtime.device import Device
from weft_server.runtime.session import CUDA, verify_device

WHERE = TESTS.parent / "build" / "bench" / "gpu"
PRECISIONS = ("fp16", "bf16", "int4-fp16")


def main():
    """Do what is not done yet, and write the page."""
    arguments = read_arguments()
    device = device_of(arguments)
    try:
        verify_device(device)
    except ConfigError as error:
        print(f"bench-gpu needs a CUDA device, and there is none: {error}")
        sys.exit(2)
    place = place_of(arguments, device)
    if arguments.piece:
        print(json.dumps(PIECES[arguments.piece].run(place, *arguments.shapes)))
        return
    if arguments.rehearse:
        print("A rehearsal: no figure below means anything.")
    where = arguments.out or WHERE / ("rehearsal" if arguments.rehearse else "parts")
    left = run_pieces(arguments, where, jobs_of(arguments))
    for folder in sorted(path for path in where.iterdir() if path.is_dir()):
        about = {"device": device_name(device), **machine(), "precision": folder.name}
        print(write_page(folder, about).read_text())
    pack(where)
    if left:
        print(f"{len(left)} pieces are left ({', '.join(left)}). Run it again.")
    failed = [path.stem for path in where.glob("*/*.json") if "failed" in json.loads(path.read_text())]
    sys.exit(f"failed: {', '.join(failed)}" if failed else 0)


def jobs_of(arguments):
    """The precision, the shape and the name of each piece that is asked for, in order."""
    if arguments.day:
        return list(DAY)
    pairs = product(arguments.shapes, PIECES)
    asked = arguments.pieces or PIECES
    return [
        (arguments.precision, shape, name) for shape, name in pairs if name in asked and PIECES[name].of(SHAPES[shape])
    ]


def pack(where):
    """Put what was found into one file, for who takes it elsewhere."""
    with tarfile.open(where / "results.tar.gz", "w:gz") as tar:
        for path in sorted([*where.glob("*/*.json"), *where.glob("*/page.md")]):
            tar.add(path, path.relative_to(where))


def read_arguments():
    """What the command line says."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cuda-device", type=int, default=0)
    parser.add_argument("--precision", choices=PRECISIONS, default="fp16")
    parser.add_argument(
        "--shapes", type=lambda text: text.split(","), help="of 100m, 1b, 8b, translator (default: all)"
    )
    parser.add_argument("--pieces", type=lambda text: text.split(","), help="by their names (default: all)")
    parser.add_argument("--day", action="store_true", help="all precisions and shapes, what is worth most first")
    parser.add_argument("--minutes", type=float, default=10, help="begin no piece that may end later (default: 10)")
    parser.add_argument("--seconds", type=float, help="how long a rate is measured (default: 5; in a rehearsal 0.1)")
    parser.add_argument("--out", type=Path, help="where the files lie (default: build/bench/gpu/parts)")
    parser.add_argument("--rehearse", action="store_true", help="to see that it runs")
    parser.add_argument("--piece", choices=PIECES, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    small = ["tiny", "tiny-shared", "tiny-translator"]
    arguments.shapes = arguments.shapes or (small if arguments.rehearse else ["100m", "1b", "translator", "8b"])
    for what, asked, known in (("shape", arguments.shapes, SHAPES), ("piece", arguments.pieces or (), PIECES)):
        if unknown := set(asked) - set(known):
            parser.error(f"no {what} is called {', '.join(sorted(unknown))}")
    if arguments.day and arguments.rehearse:
        parser.error("a day has the shapes of a device: rehearse without --day")
    if device_of(arguments).kind == "cpu" and arguments.precision == "bf16":
        parser.error("no CPU has kernels for bf16: rehearse with fp16")
    return arguments


def device_of(arguments):
    """A CUDA device, or for a rehearsal without one the CPU's memory as if it were far."""
    if arguments.rehearse and CUDA not in onnxruntime.get_available_providers():
        return Device(in_place=False)
    return Device("cuda", arguments.cuda_device, in_place=False)


def place_of(arguments, device):
    """Where pieces find and leave what they share."""
    small = arguments.rehearse
    scale = SMALL if small else FULL
    scale = scale._replace(seconds=arguments.seconds or scale.seconds)
    return Place(WHERE / ("small" if small else "weights"), device, arguments.precision, scale)


def run_pieces(arguments, where, jobs):
    """Do the pieces that are not done, or failed. Returns those that no time was left for."""
    started, left, has_run = time.monotonic(), [], False
    for precision, shape, name in jobs:
        piece, path = PIECES[name], where / precision / f"{shape}.{name}.json"
        path.parent.mkdir(parents=True, exist_ok=True)
        if path.is_file() and "failed" not in json.loads(path.read_text()):
            continue
        spent = (time.monotonic() - started) / 60
        if left or (has_run and spent + piece.minutes > arguments.minutes):
            left.append(path.stem)
            continue
        print(f"{shape} at {precision}: {piece.question}", flush=True)
        path.write_text(json.dumps(run_apart(arguments, precision, shape, name)))
        has_run = True
    return left


def run_apart(arguments, precision, shape, name):
    """Do a piece in a process of its own: what it leaves on the device is gone with it."""
    command = [sys.executable, __file__, "--piece", name, "--shapes", shape, "--precision", precision]
    command += ["--cuda-device", str(arguments.cuda_device), *(["--rehearse"] if arguments.rehearse else [])]
    command += ["--seconds", str(arguments.seconds)] if arguments.seconds else []
    started = time.monotonic()
    # Without flash attention, which the rehearsal turns off, no kernel attends over blocks.
    environment = os.environ | ({"ORT_DISABLE_FLASH_ATTENTION": "0"} if name.startswith("blocks") else {})
    ended = subprocess.run(
        command, check=False, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env=environment
    )
    part = {"seconds": time.monotonic() - started}
    lines = ended.stdout.strip().splitlines() or [""]
    if ended.returncode:
        print(ended.stdout)
        return part | {"failed": lines[-1]}
    return part | {"results": json.loads(lines[-1])}


def device_name(device):
    """What the driver calls the device."""
    if device.kind == "cpu":
        return "a CPU, as a rehearsal"
    command = ["nvidia-smi", "--query-gpu=name", "--format=csv,noheader", f"--id={device.index}"]
    try:
        return subprocess.check_output(command, text=True).strip()
    except (OSError, subprocess.CalledProcessError):
        return "a stand-in for a GPU"


if __name__ == "__main__":
    main()
