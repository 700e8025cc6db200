"""`weft up`."""

import math
import os
import signal
import sys
from pathlib import Path
from typing import Annotated, Any

import typer

from weft_export.__main__ import say_note
from weft_export.checkpoints.formats import is_gguf, is_pth
from weft_export.console import plain_errors, shown
from weft_export.converters.gguf.names import title_of
from weft_export.errors import ExportError
from weft_export.flags import check_alone, check_options, contents_of, takes_options
from weft_export.options import ExportOptions
from weft_export.up.asking import ask_server, least_bytes
from weft_export.up.hub import download, is_on_hub
from weft_export.up.kept import alone, default_home, key_of, model_name
from weft_proto.bundle_rules import MANIFEST_FILE

# Who tries a model has a browser and curl, and may have no client of gRPC.
_WEB = {"--api-port": ["--api-port", "8000"], "--console": ["--console"]}
up_app = typer.Typer(add_completion=False, rich_markup_mode=None)


def up(
    ctx: typer.Context,
    checkpoint: Annotated[
        str,
        typer.Argument(
            help="Directory of the checkpoint, a GGUF file, a .pth of RWKV, or ORG/NAME of a model on the hub."
        ),
    ],
    *,
    keep: Annotated[Path | None, typer.Option(help="Where bundles are kept.", show_default="~/.cache/weft")] = None,
    quiet: Annotated[bool, typer.Option("--quiet", help="Do not show the export's progress.")] = False,
    **flags: Any,
) -> None:
    """Export a checkpoint if that was not done yet, and serve it.

    For example: weft up my-gpt --port 7100

    The options of weft export that say what a bundle has are taken here too. All others are those of weft serve.
    They follow the checkpoint.
    """
    with plain_errors("up", extra="export"):
        options = ExportOptions(**flags)
        serving = with_web(ctx.args)
        if is_on_hub(checkpoint):
            # Before anything is downloaded.
            check_alone(options)
            ask_server(serving, 0)
        path, name = _found(checkpoint)
        check_options(path, options)
        ask_server(serving, least_bytes(path, options.precision))
        repository = (keep or default_home()) / key_of(path, name, contents_of(options))
        bundle = repository / name / "1"
        with alone(repository):
            if not (bundle / MANIFEST_FILE).is_file():
                _export(path, bundle, options, quiet=quiet)
    typer.echo(f"weft up: {name} is {bundle}", err=True)
    _become([sys.executable, "-m", "weft_command", "serve", str(repository), *serving])


def with_web(flags: list[str]) -> list[str]:
    """Return the flags of weft serve, with a port of calls by HTTP and its console, unless something says otherwise."""
    given = {flag.partition("=")[0].replace("--no-", "--") for flag in flags}
    # The server reads them in any case.
    variables = [name.lower() for name in os.environ]
    given |= {"--" + name.removeprefix("weft_").replace("_", "-") for name in variables if name.startswith("weft_")}
    return [*flags, *(part for flag, more in _WEB.items() if flag not in given for part in more)]


def _become(command: list[str]) -> None:
    """Run a server in place of this process: signals are its own, and nothing of torch stays in memory."""
    # SIGTERM waits until the server has a handler for it: process 1 of a container would ignore it before.
    before = signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGTERM])
    try:
        os.execv(command[0], command)  # noqa: S606 - no shell is wanted
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _found(checkpoint: str) -> tuple[Path, str]:
    """Return the checkpoint's directory or file, and what its model is called."""
    if checkpoint.startswith("-"):
        raise ExportError(f"the checkpoint comes first, then the flags of weft serve: weft up CHECKPOINT {checkpoint}")
    path = Path(checkpoint)
    if is_on_hub(checkpoint):
        return download(checkpoint), model_name(checkpoint.rpartition("/")[2])
    if is_gguf(path):
        return path, model_name(title_of(path))
    if is_pth(path):
        return path, model_name(path.stem)
    return path, model_name(path.absolute().name)


def _export(path: Path, bundle: Path, options: ExportOptions, *, quiet: bool) -> None:
    with shown("up", line_seconds=math.inf if quiet else 0) as say:
        say(0, 0, "loading torch")
        from weft_export.export import export_checkpoint  # noqa: PLC0415 - late: torch takes seconds to import

        def on_stage(name: str, done: int, total: int) -> None:
            say(done, total, name)

        export_checkpoint(path, bundle, options, failed_in=bundle.parents[2], on_stage=on_stage, on_note=say_note)


# What is no option here is one of weft serve.
up_app.command(context_settings={"allow_extra_args": True, "ignore_unknown_options": True})(takes_options(up))

if __name__ == "__main__":
    up_app()
