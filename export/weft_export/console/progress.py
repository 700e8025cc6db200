"""How far a command is, on stderr: a bar on a terminal, and else a line now and then; and its peak memory."""

import math
import resource
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

OnProgress = Callable[[int, int, str], None]
"""Called with how much is done, how much there is (0: not known), and a note for people."""


@contextmanager
def shown(command: str, *, line_seconds: float) -> Iterator[OnProgress]:
    """Yield what a command calls to say how far it is.

    Without a terminal, at least line_seconds lie between two lines. If line_seconds is infinite, nothing is said, on a
    terminal either.
    """
    console = Console(stderr=True)
    if line_seconds == math.inf:
        yield lambda *_: None
        return
    if not console.is_terminal:
        yield _lines(command, line_seconds)
        return
    columns = (TextColumn("{task.description}", markup=False), BarColumn(), TimeElapsedColumn())
    with Progress(*columns, console=console, transient=True) as bar:
        task = bar.add_task("loading torch", total=None)
        yield lambda done, total, note: bar.update(task, description=note, completed=done, total=total or None)


def _lines(command: str, line_seconds: float) -> OnProgress:
    started = time.monotonic()
    last = -float("inf")

    def say(done: int, total: int, note: str) -> None:
        nonlocal last
        now = time.monotonic()
        if now - last < line_seconds:
            return
        last = now
        place = f" ({done} of {total})" if total else ""
        with suppress(OSError):  # a log that is full ends no export
            print(f"weft {command}: {note}{place}, {now - started:.0f} s", file=sys.stderr, flush=True)  # noqa: T201 - to watch

    return say


_STATUS = Path("/proc/self/status")


def peak_resident_bytes() -> int:
    """Return the peak resident memory of this process since it began, in bytes.

    It counts what lay in RAM: memory of its own, and the pages of mapped files that it touched, such as a checkpoint's
    weights. The system can take those pages back; they count all the same. Other processes do not count.
    """
    # Linux hands the process's own figure on when it starts a program; getrusage then has the starter's peak too.
    if _STATUS.is_file():
        return int(_STATUS.read_text(encoding="ascii").split("VmHWM:")[1].split()[0]) * 1024
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else peak * 1024
