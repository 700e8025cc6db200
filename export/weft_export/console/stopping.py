"""What ends a command before its end: signals, as an exception, and errors, which become plain sentences."""

import signal
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

import typer

from weft_export.errors import ExportError

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
