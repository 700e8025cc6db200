"""Runs a command line: one line for every error, and an exit code to trust."""

import os
import sys
from collections.abc import Sequence
from contextlib import suppress
from io import TextIOWrapper
from pathlib import Path
from traceback import extract_tb
from typing import Any

import typer

from weft_command.plugins import ClickError, UsageError, loaded
from weft_command.plugins import app as plugins

# Click's variable for a program of the name `weft`. https://click.palletsprojects.com/en/stable/shell-completion/
_COMPLETES = "_WEFT_COMPLETE"


def run(argv: Sequence[str]) -> int:
    """Run the command line and return its exit code: 0, 1, 2 for a wrong request or usage, 130 for Ctrl-C."""
    _prepare_streams()
    try:
        code = command_of(argv).main(args=list(argv), prog_name="weft", standalone_mode=False)
    except ClickError as error:
        return _fail(_wrong_usage(error), error.exit_code)
    except (KeyboardInterrupt, typer.Abort):
        return 130
    except Exception as error:  # noqa: BLE001 - even a bug is one line to who runs a command
        return _fail(*_told(error))
    return code if isinstance(code, int) else 0


def command_of(argv: Sequence[str]) -> Any:
    """Return what has the subcommand: the client's own are imported only where they are asked for, or listed."""
    plugged: Any = typer.main.get_command(plugins)
    if argv and argv[0] in plugged.commands:
        return plugged
    from weft.cli import app  # noqa: PLC0415 - late: the SDK takes as long to import as all else that a refusal needs

    command: Any = typer.main.get_command(app)
    command.commands |= plugged.commands
    word = _completed()
    if word in plugged.commands:
        # What cannot be imported is told to who runs it.
        with suppress(Exception, SystemExit):
            command.commands[word] = loaded(word)
    return command


def _completed() -> str:
    """Return the subcommand of the line that a shell asks to complete, if one does, and it has one."""
    if _COMPLETES not in os.environ:
        return ""
    # Typer has it from bash by the one name, and from other shells by the other.
    line = os.environ.get("COMP_WORDS") or os.environ.get("_TYPER_COMPLETE_ARGS", "")
    return "".join(line.split()[1:2])


def _prepare_streams() -> None:
    for name in ("stdout", "stderr"):
        if getattr(sys, name) is None:  # closed by who started us
            setattr(sys, name, Path(os.devnull).open("w"))  # noqa: SIM115 - for as long as there is something to say
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")  # a terminal that has no such character still shows the rest


def _wrong_usage(error: Any) -> str:
    message: str = error.format_message().rstrip(".")
    # Typer reads values by pydantic, whose words these are.
    message = message.replace("Value error, ", "").replace("Input should be", "it must be")
    if "extra argument" in message and hasattr(error.ctx.command, "of_extra_arguments"):
        return str(error.ctx.command.of_extra_arguments)
    # It may end with a question.
    end = "" if message.endswith("?") else "."
    return f"{message}{end} Try --help." if isinstance(error, UsageError) else message


def _told(error: Exception) -> tuple[str, int]:
    """Return what is said of an error, and the exit code."""
    from weft.exceptions import DeadlineExceeded, Error, InvalidRequest, Unavailable  # noqa: PLC0415 - late, as above

    if isinstance(error, InvalidRequest):
        return error.message, 2
    if not isinstance(error, Error):
        return _explain(error), 1
    hint = "" if error.retry_after is None else f" (try again in {error.retry_after:g} s)"
    if error.reason == "TOKEN_MISSING":
        hint = ". --token-file FILE sends one, or WEFT_TOKEN."
    if isinstance(error, DeadlineExceeded) and not error.reason:
        hint = ". --timeout SECONDS waits longer."
    if isinstance(error, Unavailable) and not error.reason:  # no server said it
        hint = ". Is a server there? `weft serve` starts one; --target names another."
    return error.message + hint, 1


def _explain(error: Exception) -> str:
    if isinstance(error, OSError):  # a full disk, a closed terminal
        if error.filename is None:
            _drop(sys.stdout)
        return f"{error.filename or 'standard output'}: {error.strerror}"
    at = extract_tb(error.__traceback__)[-1]
    return f"{type(error).__name__}: {error} ({Path(at.filename).name}:{at.lineno}). This is a bug."


def _drop(stream: Any) -> None:
    """Let what a stream still holds go nowhere: at exit Python would try once more, and complain once more."""
    with suppress(OSError), Path(os.devnull).open("w") as nowhere:
        os.dup2(nowhere.fileno(), stream.fileno())


def _fail(message: str, code: int) -> int:
    """Say one line, without what could steer a terminal."""
    line = "".join(char if char.isprintable() else " " for char in message)
    try:
        print(f"weft: {line}", file=sys.stderr, flush=True)  # noqa: T201 - an error line belongs on stderr
    except OSError:  # the code still says what went wrong
        _drop(sys.stderr)
    return code
