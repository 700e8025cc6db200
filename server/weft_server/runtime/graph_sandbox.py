"""Opens a graph in a process of its own, and throws it away. What ONNX Runtime does to open it may have no end.

The server opens such a graph itself only if this has ended within bounds. See bundle/constant_folding.py.
"""

from __future__ import annotations

import resource
import signal
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from weft_server.errors import BundleError

if TYPE_CHECKING:
    from weft_server.runtime.halt import Halt

# Seconds of a processor that the opening of a graph may take.
CPU_S = 60
# Address space: of Python and ONNX Runtime, and for each byte of the bundle's files.
_SPACE_BYTES, _SPACE_PER_BYTE = 4 << 30, 4
_MODULE = "weft_server.runtime.graph_sandbox"
_OPENED, _REFUSED, _NO_ROOM = 0, 3, 4


def verify_opening(path: Path, halt: Halt) -> None:
    """Raise BundleError unless a graph can be opened, or is refused in good order, within bounds.

    `halt` ends it sooner.
    """
    if halt.is_called:
        raise BundleError(f"{path.name} was not opened: its time is over")
    # The path is ours. Nothing else of a bundle reaches the process but its files.
    command = [sys.executable, "-m", _MODULE, str(path), str(CPU_S)]
    with subprocess.Popen(command, stdin=subprocess.DEVNULL) as process:  # noqa: S603
        halt.watch(process.kill)
        ended = process.wait()
    if ended in (_OPENED, _REFUSED):
        return  # the server says why in its own words
    if halt.is_called:
        raise BundleError(f"{path.name} was not opened: its time is over")
    if ended == -signal.SIGXCPU:
        raise BundleError(f"{path.name} takes more than {CPU_S} s of a processor to be opened")
    if ended in (_NO_ROOM, -signal.SIGKILL):
        raise BundleError(f"{path.name} takes more memory than there is, or than its size explains, to be opened")
    raise BundleError(f"{path.name} ends the process that opens it, by {_name_of(ended)}")


def _name_of(code: int) -> str:
    return signal.Signals(-code).name if -code in set(signal.Signals) else f"exit code {code}"


def main(path: Path, cpu_s: int) -> None:
    """Open a graph. The exit code says how that ended."""
    resource.setrlimit(resource.RLIMIT_CPU, (cpu_s, 2 * cpu_s))
    space = _SPACE_BYTES + _SPACE_PER_BYTE * sum(each.stat().st_size for each in path.parent.iterdir())
    resource.setrlimit(resource.RLIMIT_AS, (space, space))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    from weft_server.runtime.session import Session, is_out_of_memory  # noqa: PLC0415 - within the bounds

    try:
        Session(path, 1, packs=False)
    except Exception as error:  # noqa: BLE001 - whatever it is, the server will say it
        sys.exit(_NO_ROOM if is_out_of_memory(error) else _REFUSED)
    sys.exit(_OPENED)


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]))
