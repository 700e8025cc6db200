"""The `weft` command: the client's own subcommands, those of other packages, and one line for every error."""

import os
import sys
from collections.abc import Callable, Sequence
from contextlib import suppress
from importlib.metadata import EntryPoint, entry_points
from io import TextIOWrapper
from pathlib import Path
from traceback import extract_tb
from typing import Annotated, Any, cast

import typer

from weft import __version__
from weft._commands import models as _models_commands
from weft._commands.table import ABOUT, COMMANDS, TAKE_TEXTS
from weft._flags import names_flags
from weft._options import SectionedCommand, flat
from weft.exceptions import Error, InvalidRequest, Unavailable

# What to say of a subcommand without importing it, and the extra that it needs.
_PLUGINS = {
    "bench": ("Put a load on a running server and measure it.", "bench"),
    "serve": ("Serve a model repository.", "server"),
    "doctor": ("Look at a machine that shall run a server.", "server"),
    "export": ("Export a checkpoint to a bundle, and prove it.", "export"),
    "export-adapter": ("Export a LoRA adapter to a place beside its base.", "export"),
    "up": ("Export a checkpoint if that was not done, and serve it.", "server,export"),
    "wrap": ("Make a bundle of an ONNX file of others, and prove it.", "export"),
    "train": ("Train a demo checkpoint by its recipe.", "train"),
}

# Typer has carried click inside itself or beside itself, by version; the bases of BadParameter are the same in both.
_UsageError, _ClickError = cast("tuple[Any, Any]", typer.BadParameter.__mro__[1:3])

_TEXT_VERBS = frozenset(verb.__name__.replace("_", "-") for verb in TAKE_TEXTS)

app = typer.Typer(name="weft", add_completion=False, invoke_without_command=True, rich_markup_mode=None)
for _verb in COMMANDS:
    app.command(cls=SectionedCommand)(flat(names_flags(_verb)))

_models = typer.Typer(rich_markup_mode=None)
_models.callback(invoke_without_command=True)(flat(names_flags(_models_commands.models)))
for _change in (_models_commands.load, _models_commands.unload, _models_commands.swap, _models_commands.label):
    _models.command(cls=SectionedCommand)(flat(names_flags(_change)))
app.add_typer(_models, name="models")


def _plugin(entry: EntryPoint) -> Callable[[typer.Context], None]:
    def run(ctx: typer.Context) -> None:
        try:
            plugin = entry.load()
        except ModuleNotFoundError as error:
            if (error.name or "").startswith("weft"):  # one of our own is never missing by the user's choice
                raise
            extra = _PLUGINS.get(entry.name, ("", ""))[1]
            remedy = f": pip install 'weft-serving[{extra}]', or in a clone: pip install '.[{extra}]'" if extra else ""
            raise Error(
                f"`weft {entry.name}` needs the module {error.name!r}, which is not installed{remedy}"
            ) from error
        command: Any = typer.main.get_command(plugin)
        code = command.main(args=ctx.args, prog_name=f"weft {entry.name}", standalone_mode=False)
        raise typer.Exit(code if isinstance(code, int) else 0)

    return run


for _entry in entry_points(group="weft.commands"):
    app.command(
        _entry.name,
        help=_PLUGINS.get(_entry.name, (f"From {_entry.value.partition(':')[0]}.", ""))[0],
        add_help_option=False,  # --help belongs to the subcommand itself, which is loaded only when it is called
        context_settings={"allow_extra_args": True, "ignore_unknown_options": True},
    )(_plugin(_entry))


@app.callback(help=ABOUT)
def root(
    ctx: typer.Context,
    *,
    version: Annotated[bool, typer.Option("--version", help="Show the version and exit.")] = False,
) -> None:
    """Do what no subcommand does."""
    if version:
        print(f"weft {__version__}", flush=True)  # noqa: T201 - the answer to what was asked
    elif ctx.invoked_subcommand is None:
        print(ctx.get_help(), flush=True)  # noqa: T201 - same


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line and return its exit code: 0, 1, 2 for a wrong request or usage, 130 for Ctrl-C."""
    _prepare_streams()
    command: Any = typer.main.get_command(app)
    try:
        code = command.main(args=argv, prog_name="weft", standalone_mode=False)
    except InvalidRequest as error:
        return _fail(error.message, 2)
    except Error as error:
        hint = "" if error.retry_after is None else f" (try again in {error.retry_after:g} s)"
        if error.reason == "TOKEN_MISSING":
            hint = ". --token-file FILE sends one, or WEFT_TOKEN."
        if isinstance(error, Unavailable) and not error.reason:  # no server said it
            hint = ". Is a server there? `weft serve` starts one; --target names another."
        return _fail(error.message + hint, 1)
    except _ClickError as error:
        return _fail(_wrong_usage(error), error.exit_code)
    except (KeyboardInterrupt, typer.Abort):
        return 130
    except Exception as error:  # noqa: BLE001 - even a bug is one line to who runs a command
        return _fail(_explain(error), 1)
    return code if isinstance(code, int) else 0


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
    if "extra argument" in message and error.ctx.info_name in _TEXT_VERBS:
        return "put a text of several words in quotes"
    return f"{message}. Try --help." if isinstance(error, _UsageError) else message


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


if __name__ == "__main__":
    sys.exit(main())
