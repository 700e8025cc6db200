"""What a command says when it cannot go on: one sentence on stderr, and an exit code."""

from collections.abc import Iterator
from contextlib import contextmanager

import typer

from weft_export.console.stopping import Stopped, stopped_by_signals
from weft_export.errors import ExportError


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
    if not isinstance(error, ModuleNotFoundError):
        return str(error)
    if (error.name or "").startswith("weft"):
        raise error
    return (
        f"the module {error.name!r} is not installed: pip install 'weft-serving[{extra}]',"
        f" or in a clone: pip install '.[{extra}]'"
    )
