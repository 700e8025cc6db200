"""`weft export-adapter`."""

import math
from pathlib import Path
from typing import Annotated

import typer

from weft_export.console import peak_resident_bytes, plain_errors, shown
from weft_export.options import utf8

export_adapter_app = typer.Typer(add_completion=False, rich_markup_mode=None)


@export_adapter_app.command()
def export_adapter(
    adapter: Annotated[Path, typer.Argument(help="Directory of the adapter, in PEFT's format.")],
    bundle: Annotated[
        Path, typer.Argument(help="Directory of its base's bundle, exported with --adapters: models/en-es/1.")
    ],
    checkpoint: Annotated[Path, typer.Option("--checkpoint", help="Directory that the bundle was made of.")],
    name: Annotated[str | None, typer.Option(help="What requests call it.", show_default="the name of ADAPTER")] = None,
    golden: Annotated[
        str | None,
        typer.Option(help="The text that a server tries before it answers with it.", show_default="the bundle's"),
    ] = None,
    description: Annotated[str, typer.Option(help="One sentence for people.")] = "",
    held_out: Annotated[
        Path | None,
        typer.Option(
            "--held-out",
            help="For a bundle that is rounded: the examples that it was exported with.",
            show_default="held_out.jsonl of the checkpoint",
        ),
    ] = None,
    *,
    force: Annotated[bool, typer.Option("--force", help="Replace the adapter that is already there.")] = False,
    quiet: Annotated[bool, typer.Option("--quiet", help="Do not show progress.")] = False,
) -> None:
    """Export a LoRA adapter to a place beside its base, and prove it.

    For example: weft export-adapter lora models/gpt/1 --checkpoint gpt

    Torch answers with the adapter added to its weights, and ONNX Runtime with the adapter beside them.
    If they disagree, nothing is written.
    """
    with (
        plain_errors("export-adapter", extra="export"),
        shown("export-adapter", line_seconds=math.inf if quiet else 0) as say,
    ):
        say(0, 0, "loading torch")
        from weft_export.adapters import export_adapter as exporting  # noqa: PLC0415 - late: torch takes seconds

        report = exporting.export_adapter(
            adapter,
            bundle,
            checkpoint,
            name=name,
            golden=None if golden is None else utf8("--golden", golden),
            description=utf8("--description", description),
            held_out=held_out,
            force=force,
            on_stage=lambda stage: say(0, 0, stage),
        )
    for note in report.notes:
        typer.echo(f"note: {note}", err=True)
    parity = report.manifest.parity
    ranks = sorted({layer.rank for layer in report.manifest.layers})
    typer.echo(
        f"{report.directory}: {report.size_bytes / 1e6:.2f} MB, {len(report.manifest.layers)} products of rank"
        f" {', '.join(map(str, ranks))}, largest difference from torch {parity.max_abs_error:.1e} (allowed"
        f" {parity.tolerance:.2g}), {report.seconds:.1f} s, peak memory {peak_resident_bytes() / 1e6:.0f} MB"
    )


if __name__ == "__main__":
    export_adapter_app()
