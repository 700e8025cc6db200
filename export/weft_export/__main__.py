"""`weft export`."""

import math
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from weft_export.choices import Precision
from weft_export.console import peak_resident_bytes, plain_errors, shown
from weft_export.errors import ExportError
from weft_export.flags import check_options, takes_options
from weft_export.options import ExportOptions
from weft_export.target import check_target
from weft_proto.v1 import bundle_pb2

if TYPE_CHECKING:
    from weft_export.export import Report

# Without rich: it shows a type for flags that take none, and makes columns that are too narrow for words.
export_app = typer.Typer(add_completion=False, rich_markup_mode=None)


def export(
    checkpoint: Annotated[Path, typer.Argument(help="Directory of the checkpoint, a GGUF file, or a .pth of RWKV.")],
    bundle: Annotated[
        Path | None,
        typer.Argument(
            help="Directory of the new bundle: NAME/VERSION in a model repository. For example models/en-es/1."
        ),
    ] = None,
    *,
    check: Annotated[
        bool, typer.Option("--check", help="Say what would be done, and what it would take. Make nothing.")
    ] = False,
    slots: Annotated[
        int, typer.Option(min=1, max=1024, help="With --check: the slots of the server, as of weft serve.")
    ] = 32,
    graphs_only: Annotated[
        bool,
        typer.Option(
            "--graphs-only",
            help="For who has a runtime: write the .onnx files and ports.json alone. BUNDLE is any new directory.",
        ),
    ] = False,
    force: Annotated[bool, typer.Option("--force", help="Replace the bundle that is already there.")] = False,
    quiet: Annotated[bool, typer.Option("--quiet", help="Do not show progress.")] = False,
    **flags: Any,
) -> None:
    """Export a checkpoint of Weft, a Hugging Face directory or a GGUF file to a bundle, and prove it.

    For example: weft export my-gpt models/my-gpt/1

    Torch and ONNX Runtime answer the same requests. If they disagree, nothing is written.
    """
    with plain_errors("export"), shown("export", line_seconds=math.inf if quiet else 0) as say:
        options = ExportOptions(**flags)
        if graphs_only:
            _check_graphs_only(options, force=force)
        check_options(checkpoint, options, of_each=check)
        if check:
            say(0, 0, "loading torch")
            typer.echo("\n".join(_checked(checkpoint, bundle, slots, options)))
            return
        if bundle is None:
            raise ExportError("the directory of the new bundle is missing, such as models/en-es/1")
        if not graphs_only:
            check_target(bundle, force=force)
        say(0, 0, "loading torch")

        def on_stage(name: str, done: int, total: int) -> None:
            say(done, total, name)

        if graphs_only:
            from weft_export.graphs_only import export_graphs  # noqa: PLC0415 - late: torch takes seconds to import

            parity = export_graphs(checkpoint, bundle, options, on_stage, say_note)
            typer.echo(f"{bundle}: largest difference from torch {parity.max_abs_error:.1e}")
            return
        from weft_export.export import export_checkpoint  # noqa: PLC0415 - same

        report = export_checkpoint(checkpoint, bundle, options, force=force, on_stage=on_stage, on_note=say_note)
    parity = report.manifest.parity
    typer.echo(
        f"{report.bundle}: {report.size_bytes / 1e6:.1f} MB, largest difference from torch"
        f" {parity.max_abs_error:.1e} (allowed {parity.tolerance:.2g}), {report.seconds:.1f} s,"
        f" peak memory {peak_resident_bytes() / 1e6:.0f} MB"
    )
    if report.manifest.HasField("rounding"):
        typer.echo("\n".join(_rounding_lines(report, options.precision)))


def _checked(checkpoint: Path, bundle: Path | None, slots: int, options: ExportOptions) -> list[str]:
    from weft_export.check import check  # noqa: PLC0415 - late: torch takes seconds to import

    return check(checkpoint, options, slots, bundle)


def _check_graphs_only(options: ExportOptions, *, force: bool) -> None:
    unmeant = {
        "--held-out": options.held_out,
        "--mixed-runs": options.mixed_runs,
        "--no-score": options.no_score,
        "--adapters": options.adapters,
        "--paged": options.paged,
        "--force": force,
    }
    if given := ", ".join(flag for flag, value in unmeant.items() if value):
        raise ExportError(f"{given}: of no meaning with --graphs-only")


def say_note(sentence: str) -> None:
    """Say what a person should know of a checkpoint: on stderr beside the progress, so that stdout has the result."""
    typer.echo(f"note: {sentence}", err=True)


def _rounding_lines(report: "Report", precision: str) -> Iterator[str]:
    yield _quality_line(report)
    rounding = report.manifest.rounding
    if precision != Precision.INT8:
        yield _bits_line(rounding, precision)
        return
    from weft_export.quantization.choice import MAX_EFFECT  # noqa: PLC0415 - late: torch takes seconds to import

    if rounding.products or rounding.effect > MAX_EFFECT:
        yield _rounding_line(rounding)


def _quality_line(report: "Report") -> str:
    if report.unscored is not None:
        return f"quality not measured: held-out examples are not for {report.unscored}"
    manifest = report.manifest
    if not manifest.HasField("quality"):
        rounded = any(state.data_type == bundle_pb2.DATA_TYPE_INT8 for state in manifest.states)
        source = "random requests" if manifest.HasField("image") else "texts of the exporter's own"
        scales = f"; keys and values are scaled by {source}" if rounded else ""
        return f"quality not measured: the checkpoint has no held_out.jsonl, and there was no --held-out FILE{scales}"
    from weft_export.verification.quality import MIN_EXAMPLES  # noqa: PLC0415 - late: torch takes seconds to import

    quality = manifest.quality
    few = (
        f"; fewer than {MIN_EXAMPLES}, of which one is too much to lose" if quality.num_examples < MIN_EXAMPLES else ""
    )
    return (
        f"{quality.metric} {quality.score:.4f} on {quality.num_examples} held-out examples,"
        f" {quality.fp32_score:.4f} at fp32 (allowed {quality.min_share:.0%} of it){few}"
    )


def _rounding_line(rounding: bundle_pb2.Rounding) -> str:
    from weft_export.quantization.choice import MAX_EFFECT  # noqa: PLC0415 - late: torch takes seconds to import

    num_floats = sum(product.is_float for product in rounding.products)
    num_smoothed = sum(product.strength > 0 for product in rounding.products)
    return (
        f"of {rounding.num_products} products {num_smoothed} were smoothed, and {num_floats} stay float32: rounding"
        f" moves an answer by {rounding.effect:.4f} nats instead of {rounding.plain_effect:.4f} (estimated)"
        f"{f'; more than {MAX_EFFECT} is not for int8' if rounding.effect > MAX_EFFECT else ''}"
    )


def _bits_line(rounding: bundle_pb2.Rounding, precision: str) -> str:
    from weft_export.quantization.choice import MAX_BLOCK_EFFECT  # noqa: PLC0415 - late: torch takes seconds to import

    counts = Counter((product.bits, product.block_size) for product in rounding.products)
    said = " and ".join(
        f"{count} with weights of {bits} bits in blocks of {size}" for (bits, size), count in sorted(counts.items())
    )
    too_much = f"; more than {MAX_BLOCK_EFFECT} is not for {precision}" if rounding.effect > MAX_BLOCK_EFFECT else ""
    return f"{said}: rounding moves an answer by {rounding.effect:.4f} nats (estimated){too_much}"


export_app.command()(takes_options(export))

if __name__ == "__main__":
    export_app()
