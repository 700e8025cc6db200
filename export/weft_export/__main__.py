"""`weft export` and `weft train`."""

import math
from collections.abc import Iterator
from contextlib import contextmanager
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from weft_export.console.progress import shown
from weft_export.console.stopping import Stopped, stopped_by_signals
from weft_proto.v1 import bundle_pb2

# Without rich, which gives flags a type that they do not take, and columns that are too narrow for words.
export_app = typer.Typer(add_completion=False, rich_markup_mode=None)
train_app = typer.Typer(add_completion=False, rich_markup_mode=None)


class Precision(StrEnum):
    """What a bundle computes in."""

    FP32 = "fp32"
    FP16 = "fp16"
    BF16 = "bf16"
    INT8 = "int8"


@export_app.command()
def export(
    checkpoint: Annotated[Path, typer.Argument(help="The checkpoint's directory.")],
    bundle: Annotated[
        Path, typer.Argument(help="Where it goes: NAME/VERSION in a model repository, such as models/en-es/1.")
    ],
    precision: Annotated[Precision, typer.Option(help="fp32, int8: CPU; fp16, bf16: CUDA.")] = Precision.FP32,
    held_out: Annotated[
        Path | None,
        typer.Option(help="Held-out examples that int8 is measured on.", show_default="the checkpoint's, if any"),
    ] = None,
    *,
    mixed_runs: Annotated[
        bool,
        typer.Option(
            "--mixed-runs",
            help="Generation on CPU: read prompts in decode runs. Streams keep their pace, but weights are held twice.",
        ),
    ] = False,
    force: Annotated[bool, typer.Option("--force", help="Replace the bundle that is there.")] = False,
    quiet: Annotated[bool, typer.Option("--quiet", help="Don't say how far it is.")] = False,
) -> None:
    """Export a checkpoint to a bundle, and prove it: torch and ONNX Runtime must agree, or nothing is written."""
    with _plain_errors("export"), shown("export", line_seconds=math.inf if quiet else 0) as say:
        say(0, 0, "loading torch")
        from weft_export.export import export_checkpoint  # noqa: PLC0415 - late: torch takes seconds to import

        report = export_checkpoint(
            checkpoint,
            bundle,
            precision,
            held_out=held_out,
            mixed_runs=mixed_runs,
            force=force,
            on_stage=lambda name, done, total: say(done, total, name),
        )
    parity = report.manifest.parity
    typer.echo(
        f"{report.bundle}: {report.size_bytes / 1e6:.1f} MB, largest difference from torch"
        f" {parity.max_abs_error:.1e} (allowed {parity.tolerance:.2g}), {report.seconds:.1f} s"
    )
    if precision == Precision.INT8:
        typer.echo(_quality_line(report.manifest))


def _quality_line(manifest: bundle_pb2.BundleManifest) -> str:
    if not manifest.HasField("quality"):
        rounded = any(state.data_type == bundle_pb2.DATA_TYPE_INT8 for state in manifest.states)
        scales = "; keys and values are scaled by random requests alone" if rounded else ""
        return f"quality not measured: the checkpoint has no held_out.jsonl, and there was no --held-out FILE{scales}"
    from weft_export.proofs.quality import MIN_EXAMPLES  # noqa: PLC0415 - late: torch takes seconds to import

    quality = manifest.quality
    few = (
        f"; fewer than {MIN_EXAMPLES}, of which one is too much to lose" if quality.num_examples < MIN_EXAMPLES else ""
    )
    return (
        f"{quality.metric} {quality.score:.4f} on {quality.num_examples} held-out examples,"
        f" {quality.fp32_score:.4f} at fp32 (allowed {quality.min_share:.0%} of it){few}"
    )


@train_app.command()
def train(
    recipe: Annotated[str, typer.Argument(help="The recipe's name.")],
    out: Annotated[
        Path | None,
        typer.Argument(help="The directory that the checkpoint goes to.", show_default="in build/checkpoints"),
    ] = None,
) -> None:
    """Train a demo checkpoint by its recipe and print what it measured on held-out data."""
    with _plain_errors("train"), shown("train", line_seconds=15) as say:
        say(0, 0, "loading torch")
        from weft_export.errors import ExportError  # noqa: PLC0415 - late, with the rest
        from weft_export.recipes import RECIPES  # noqa: PLC0415 - late: torch takes seconds to import

        if recipe not in RECIPES:
            raise ExportError(f"there is no recipe {recipe!r}; there are {', '.join(RECIPES)}")
        directory = out or Path("build/checkpoints") / recipe
        figures = RECIPES[recipe](directory, say)
    typer.echo(f"{directory}:")
    for name, value in figures.items():
        typer.echo(f"  {name}: {value:.4g}" if isinstance(value, float) else f"  {name}: {value}")


@contextmanager
def _plain_errors(command: str) -> Iterator[None]:
    from weft_export.errors import ExportError  # noqa: PLC0415 - keeps the module's own import light

    try:
        with stopped_by_signals():
            yield
    except Stopped as stopped:
        typer.echo(f"weft {command}: stopped by {stopped.name}", err=True)
        raise typer.Exit(stopped.exit_code) from None
    except (ExportError, ModuleNotFoundError, OSError) as error:
        if isinstance(error, ModuleNotFoundError):
            if (error.name or "").startswith("weft"):  # one of our own is never missing by the user's choice
                raise
            error = ExportError(
                f"the module {error.name!r} is not installed: pip install 'weft-serving[export]', "
                "or in a clone: pip install '.[export]'"
            )
        typer.echo(f"weft {command}: {error}", err=True)
        raise typer.Exit(1) from error


if __name__ == "__main__":
    export_app()
