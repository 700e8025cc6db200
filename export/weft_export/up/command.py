"""`weft up`."""

import math
import os
import signal
import sys
from pathlib import Path
from typing import Annotated

import typer

from weft_export.__main__ import Precision, say_note
from weft_export.checkpoints.files import check_directory
from weft_export.console.failing import plain_errors
from weft_export.console.progress import shown
from weft_export.errors import ExportError
from weft_export.up.hub import download, is_hub_name
from weft_export.up.kept import alone, default_home, key_of, model_name
from weft_export.wrapping.labels import read_labels
from weft_proto.bundle_rules import MANIFEST_FILE

up_app = typer.Typer(add_completion=False, rich_markup_mode=None)


@up_app.command(context_settings={"allow_extra_args": True, "ignore_unknown_options": True})
def up(
    ctx: typer.Context,
    checkpoint: Annotated[str, typer.Argument(help="Directory of the checkpoint, or ORG/NAME of a model on the hub.")],
    precision: Annotated[Precision, typer.Option(metavar="PRECISION", help="As of weft export.")] = Precision.FP32,
    max_tokens: Annotated[int | None, typer.Option(min=1, help="As of weft export.", show_default=False)] = None,
    max_source_tokens: Annotated[int | None, typer.Option(min=1, help="As of weft export.", show_default=False)] = None,
    labels: Annotated[Path | None, typer.Option(help="As of weft export.", show_default=False)] = None,
    keep: Annotated[Path | None, typer.Option(help="Where bundles are kept.", show_default="~/.cache/weft")] = None,
    *,
    mixed_runs: Annotated[bool, typer.Option("--mixed-runs", help="As of weft export.")] = False,
    quiet: Annotated[bool, typer.Option("--quiet", help="Do not show the export's progress.")] = False,
) -> None:
    """Export a checkpoint if that was not done yet, and serve it.

    Other flags are those of weft serve. They follow the checkpoint. For example: weft up my-gpt --port 8000
    """
    with plain_errors("up", extra="export"):
        lengths = (max_tokens, max_source_tokens)
        named = () if labels is None else read_labels(labels)
        options = {"precision": precision.value, "mixed_runs": mixed_runs, "lengths": lengths, "labels": named}
        path, name = _found(checkpoint)
        repository = (keep or default_home()) / key_of(path, name, options)
        bundle = repository / name / "1"
        with alone(repository):
            if not (bundle / MANIFEST_FILE).is_file():
                _export(path, bundle, precision, lengths, named, mixed_runs=mixed_runs, quiet=quiet)
    typer.echo(f"weft up: {name} is {bundle}", err=True)
    _become([sys.executable, "-m", "weft_command", "serve", str(repository), *ctx.args])


def _become(command: list[str]) -> None:
    """Run a server in place of this process: signals are its own, and nothing of torch stays in memory."""
    # SIGTERM waits until the server has a handler for it: process 1 of a container would ignore it before.
    before = signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGTERM])
    try:
        os.execv(command[0], command)  # noqa: S606 - no shell is wanted
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _found(checkpoint: str) -> tuple[Path, str]:
    """Return the checkpoint's directory, and what its model is called."""
    if checkpoint.startswith("-"):
        raise ExportError(f"the checkpoint comes first, then the flags of weft serve: weft up CHECKPOINT {checkpoint}")
    path = Path(checkpoint)
    if not path.exists() and is_hub_name(checkpoint):
        return download(checkpoint), model_name(checkpoint.rpartition("/")[2])
    check_directory(path)
    return path, model_name(path.absolute().name)


def _export(
    path: Path,
    bundle: Path,
    precision: Precision,
    lengths: tuple[int | None, int | None],
    labels: tuple[str, ...],
    *,
    mixed_runs: bool,
    quiet: bool,
) -> None:
    with shown("up", line_seconds=math.inf if quiet else 0) as say:
        say(0, 0, "loading torch")
        from weft_export.converters.converter import Choices  # noqa: PLC0415 - late: torch takes seconds to import
        from weft_export.export import export_checkpoint  # noqa: PLC0415 - same

        export_checkpoint(
            path,
            bundle,
            precision,
            mixed_runs=mixed_runs,
            choices=Choices(*lengths, labels=labels),
            failed_in=bundle.parents[2],
            on_stage=lambda name, done, total: say(done, total, name),
            on_note=say_note,
        )


if __name__ == "__main__":
    up_app()
