"""The subcommands that other packages bring: each is imported when it is called, and its package alone."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib.metadata import EntryPoint, entry_points
from typing import Any, cast

import typer

# What to say of a subcommand without importing it, and the extra that it needs.
PLUGINS = {
    "bench": ("Put a load on a running server and measure it.", "bench"),
    "plan": ("Measure a bundle, and say what a load needs.", "bench,server"),
    "serve": ("Serve a model repository.", "server"),
    "doctor": ("Look at a machine that shall run a server.", "server"),
    "export": ("Export a checkpoint to a bundle, and prove it.", "export"),
    "export-adapter": ("Export a LoRA adapter to a place beside its base.", "export"),
    "up": ("Export a checkpoint if that was not done, and serve it.", "server,export"),
    "wrap": ("Make a bundle of an ONNX file of others, and prove it.", "export"),
    "train": ("Train a demo checkpoint by its recipe.", "train"),
}

OURS = "weft-serving"
"""The distribution that Weft is."""

# Typer has carried click inside itself or beside itself, by version; the bases of BadParameter are the same in both.
UsageError, ClickError = cast("tuple[Any, Any]", typer.BadParameter.__mro__[1:3])

app = typer.Typer(name="weft", add_completion=False, rich_markup_mode=None)


def loaded(name: str) -> Any:
    """Return the command that stands behind a subcommand's name, with its flags. Raises what its import raises."""
    (entry,) = entry_points(group="weft.commands", name=name)
    return typer.main.get_command(entry.load())


def _plugin(entry: EntryPoint) -> Callable[[typer.Context], None]:
    def run(ctx: typer.Context) -> None:
        try:
            with _blamed(entry):
                command: Any = typer.main.get_command(entry.load())
        except ModuleNotFoundError as error:
            if (error.name or "").startswith("weft"):  # one of our own is never missing by the user's choice
                raise
            extra = PLUGINS.get(entry.name, ("", ""))[1]
            remedy = f": pip install 'weft-serving[{extra}]', or in a clone: pip install '.[{extra}]'" if extra else ""
            raise ClickError(
                f"`weft {entry.name}` needs the module {error.name!r}, which is not installed{remedy}"
            ) from error
        code = command.main(args=ctx.args, prog_name=f"weft {entry.name}", standalone_mode=False)
        raise typer.Exit(code if isinstance(code, int) else 0)

    return run


@contextmanager
def _blamed(entry: EntryPoint) -> Iterator[None]:
    """Name the package whose entry point fails in this block, unless it is ours: other people's bugs are not our own.

    A module of others that is missing passes: its extra is named.
    """
    package = entry.dist.name if entry.dist is not None else entry.module
    try:
        yield
    except (Exception, SystemExit) as error:  # it may be other people's code, which may do anything
        root = (error.name or "").partition(".")[0] if isinstance(error, ModuleNotFoundError) else ""
        is_extra = root and root != entry.module.partition(".")[0] and not root.startswith("weft")
        if is_extra or package == OURS:
            raise
        raise ClickError(
            f"`weft {entry.name}` of the package {package} cannot be loaded: {type(error).__name__}: {error}"
        ) from error


for _entry in entry_points(group="weft.commands"):
    app.command(
        _entry.name,
        help=PLUGINS.get(_entry.name, (f"From {_entry.value.partition(':')[0]}.", ""))[0],
        add_help_option=False,  # --help belongs to the subcommand itself, which is loaded only when it is called
        context_settings={"allow_extra_args": True, "ignore_unknown_options": True},
    )(_plugin(_entry))


@app.callback()
def weft() -> None:
    """Be a command of subcommands, however many there are."""
