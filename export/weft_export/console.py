"""What a command shows and hears beside its work: how far it is, its peak memory, signals, and errors as sentences."""

import math
import resource
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from types import FrameType

import typer

from weft_export.errors import ExportError

OnProgress = Callable[[int, int, str], None]
"""Called with how much is done, how much there is (0: not known), and a note for people."""


@contextmanager
def shown(command: str, *, line_seconds: float) -> Iterator[OnProgress]:
    """Yield what a command calls to say how far it is.

    Without a terminal, at least line_seconds lie between two lines. If line_seconds is infinite, nothing is said, on a
    terminal either.
    """
    if line_seconds == math.inf:
        yield lambda *_: None
        return
    from rich.console import Console  # noqa: PLC0415 - late: `weft up` refuses without it
    from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn  # noqa: PLC0415 - same

    console = Console(stderr=True)
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


_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
# A terminal and a parent process may each send a signal. After the first, others are ignored for this many seconds, so
# that the cleaning up is left alone.
_PATIENCE = 2.0


class Stopped(BaseException):
    """A signal came. It is not an Exception, so that nobody takes it for a failure of what was running."""

    def __init__(self, signum: int) -> None:
        super().__init__(signum)
        self.name = signal.Signals(signum).name
        self.exit_code = 128 + signum
        """What a shell says of a process that the signal ended."""


@contextmanager
def stopped_by_signals() -> Iterator[None]:
    """Raise Stopped in this block for Ctrl-C, SIGTERM and SIGHUP. What is ignored, as by nohup, stays ignored."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    last = -_PATIENCE

    def stop(signum: int, _: FrameType | None) -> None:
        nonlocal last
        now = time.monotonic()
        if now - last >= _PATIENCE:
            last = now
            raise Stopped(signum)

    before = {each: signal.getsignal(each) for each in _SIGNALS}
    caught = [each for each, handler in before.items() if handler is not signal.SIG_IGN]
    for each in caught:
        signal.signal(each, stop)
    try:
        yield
    finally:
        for each in caught:
            signal.signal(each, before[each])


@contextmanager
def plain_errors(command: str, *, extra: str = "") -> Iterator[None]:
    """End `weft COMMAND` in this block as its user expects. The extra, by default of the same name, has its modules.

    There are three cases:

    1. A signal ends it: the exit code is the shell's for that signal.
    2. An ExportError, an OSError, or a module that is not installed: the exit code is 1.
    3. All else is a bug, and is passed on. So is a missing module of our own, which is never missing by choice.
    """
    try:
        with stopped_by_signals():
            yield
    except Stopped as stopped:
        typer.echo(f"weft {command}: stopped by {stopped.name}", err=True)
        raise typer.Exit(stopped.exit_code) from None
    except (ExportError, ModuleNotFoundError, OSError) as error:
        typer.echo(f"weft {command}: {_sentence(extra or command, error)}", err=True)
        raise typer.Exit(1) from error


def _sentence(extra: str, error: Exception) -> str:
    if isinstance(error, OSError) and error.filename is not None:
        return f"{error.filename}: {error.strerror}"
    if not isinstance(error, ModuleNotFoundError):
        return str(error)
    if (error.name or "").startswith("weft"):
        raise error
    return (
        f"the module {error.name!r} is not installed: pip install 'weft-serving[{extra}]',"
        f" or in a clone: pip install '.[{extra}]'"
    )
