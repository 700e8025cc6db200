"""`weft export`."""

import math
from collections import Counter
from collections.abc import Iterator
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from weft_export.console.failing import plain_errors
from weft_export.console.peak import peak_resident_bytes
from weft_export.console.progress import shown
from weft_export.console.utf8 import utf8
from weft_export.errors import ExportError
from weft_proto.v1 import bundle_pb2

# Without rich: it shows a type for flags that take none, and makes columns that are too narrow for words.
export_app = typer.Typer(add_completion=False, rich_markup_mode=None)


class Precision(StrEnum):
    """What a bundle computes in."""

    FP32 = "fp32"
    FP16 = "fp16"
    BF16 = "bf16"
    INT8 = "int8"
    INT8_WEIGHTS = "int8-weights"
    INT4 = "int4"
    NF4 = "nf4"


class Pooling(StrEnum):
    """How the places of a text become one vector."""

    CLS = "cls"
    MEAN = "mean"
    LAST = "last"
    MAX = "max"


@export_app.command()
def export(
    checkpoint: Annotated[Path, typer.Argument(help="Directory of the checkpoint.")],
    bundle: Annotated[
        Path | None,
        typer.Argument(
            help="Directory of the new bundle: NAME/VERSION in a model repository. For example models/en-es/1."
        ),
    ] = None,
    precision: Annotated[
        Precision,
        typer.Option(
            # All names in a row would be wider than a narrow terminal.
            metavar="PRECISION",
            help="fp32, int8, int8-weights, int4 or nf4, which are for CPU; fp16 or bf16, for CUDA.",
        ),
    ] = Precision.FP32,
    held_out: Annotated[
        Path | None,
        typer.Option(
            help="Where weights are rounded: file of held-out examples. They measure what it costs.",
            show_default="held_out.jsonl of the checkpoint, if any",
        ),
    ] = None,
    *,
    mixed_runs: Annotated[
        bool,
        typer.Option(
            "--mixed-runs",
            help="For models that generate, on CPU: read prompts in decode runs. Streams then keep their pace beside "
            "long prompts. The server holds the decoder's weights twice.",
        ),
    ] = False,
    no_explain: Annotated[
        bool,
        typer.Option(
            "--no-explain",
            help="Leave out the graph that says what an answer attended to. The export is quicker, and no request can "
            "ask to explain.",
        ),
    ] = False,
    no_score: Annotated[
        bool,
        typer.Option(
            "--no-score",
            help="Leave out the graph that says how probable a given answer is. The server takes less memory.",
        ),
    ] = False,
    paged: Annotated[
        bool,
        typer.Option(
            "--paged",
            help="For models that generate, at fp16 or bf16, on CUDA: sequences hold blocks of a cache as they grow, "
            "and not a slot each of the longest. More of them fit into memory.",
        ),
    ] = False,
    adapters: Annotated[
        int | None,
        typer.Option(
            min=1,
            max=256,
            metavar="RANK",
            help="Take low-rank adapters (LoRA) of at most this rank, which weft export-adapter makes. On CPU.",
            show_default="none",
        ),
    ] = None,
    adapted: Annotated[
        str | None,
        typer.Option(
            help="With --adapters: which products of each layer can have one, with commas: qkv,query,key,value,output,"
            "gate,inner,outer. Fewer make quicker steps.",
            show_default="all",
        ),
    ] = None,
    max_tokens: Annotated[
        int | None,
        typer.Option(
            min=1,
            help="Of a Hugging Face directory: the context of a generator, or the longest answer or text. More takes "
            "more memory for each sequence.",
            show_default="what the model takes, at most 2048",
        ),
    ] = None,
    max_source_tokens: Annotated[
        int | None,
        typer.Option(
            min=1,
            help="Of a Hugging Face directory that translates: the longest source.",
            show_default="what the model takes, at most 512",
        ),
    ] = None,
    golden: Annotated[
        str | None,
        typer.Option(
            help="What a server tries before it is ready: a text, or the file of a picture, a recording (WAV) or a "
            "text (.txt).",
            show_default="the checkpoint's, or one of the exporter's",
        ),
    ] = None,
    description: Annotated[
        str | None, typer.Option(help="Of a Hugging Face directory: one sentence for people.")
    ] = None,
    labels: Annotated[
        Path | None,
        typer.Option(
            help="Of a whole CLIP model: file of labels that stay, with a line each. Their texts are encoded now, and "
            "the bundle has no text encoder. Without it, labels come with a request."
        ),
    ] = None,
    label_text: Annotated[
        str | None,
        typer.Option(
            help="Of a whole CLIP model: the text of a label, which takes the place of {}.",
            show_default="This is a photo of {}.",
        ),
    ] = None,
    pooling: Annotated[
        Pooling | None,
        typer.Option(
            help="Of the body of a text encoder: make an embedder of it that takes the first token, the mean, the last "
            "token or the largest values.",
            show_default="what modules.json of sentence-transformers says",
        ),
    ] = None,
    pairs: Annotated[
        bool,
        typer.Option(
            "--pairs",
            help="Of a classifier of texts with several labels: it judges two texts: premise and hypothesis, perhaps. "
            "One of one label always does.",
        ),
    ] = False,
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
) -> None:
    """Export a checkpoint of Weft or a Hugging Face directory to a bundle, and prove it.

    Torch and ONNX Runtime answer the same requests. If they disagree, nothing is written.
    """
    with plain_errors("export"), shown("export", line_seconds=math.inf if quiet else 0) as say:
        say(0, 0, "loading torch")
        from weft_export.converters.converter import Choices  # noqa: PLC0415 - late: torch takes seconds to import
        from weft_export.export import adaptable, export_checkpoint  # noqa: PLC0415 - late: torch takes seconds to import
        from weft_export.wrapping.labels import read_labels  # noqa: PLC0415 - same

        named = () if labels is None else read_labels(labels)
        given_texts = {"--golden": golden, "--description": description, "--label-text": label_text}
        texts = [text if text is None else utf8(option, text) for option, text in given_texts.items()]
        choices = Choices(max_tokens, max_source_tokens, texts[0], texts[1], named, texts[2], pooling, pairs)

        def on_stage(name: str, done: int, total: int) -> None:
            say(done, total, name)

        if graphs_only:
            unmeant = {
                "--held-out": held_out,
                "--mixed-runs": mixed_runs,
                "--no-score": no_score,
                "--adapters": adapters,
                "--paged": paged,
                "--force": force,
            }
            if given := ", ".join(flag for flag, value in unmeant.items() if value):
                raise ExportError(f"{given}: of no meaning with --graphs-only")
        if adapted is not None and adapters is None:
            raise ExportError("--adapted says which products take adapters: it needs --adapters RANK")
        places = None if adapters is None else adaptable(adapters, adapted)
        if check:
            from weft_export.check import check as checked  # noqa: PLC0415 - same

            graphs = {
                "explains": not no_explain,
                "scores": not no_score,
                "mixed_runs": mixed_runs,
                "paged": paged,
            }
            lines = checked(checkpoint, choices, slots, bundle, adapters=places, **graphs)
            typer.echo("\n".join(lines))
            return
        if bundle is None:
            raise ExportError("the directory of the new bundle is missing, such as models/en-es/1")
        if graphs_only:
            from weft_export.graphs_only import export_graphs  # noqa: PLC0415 - same

            parity = export_graphs(checkpoint, bundle, precision, choices, on_stage, say_note, explains=not no_explain)
            typer.echo(f"{bundle}: largest difference from torch {parity.max_abs_error:.1e}")
            return
        report = export_checkpoint(
            checkpoint,
            bundle,
            precision,
            held_out=held_out,
            mixed_runs=mixed_runs,
            explains=not no_explain,
            scores=not no_score,
            adapters=places,
            paged=paged,
            force=force,
            choices=choices,
            on_stage=on_stage,
            on_note=say_note,
        )
    parity = report.manifest.parity
    typer.echo(
        f"{report.bundle}: {report.size_bytes / 1e6:.1f} MB, largest difference from torch"
        f" {parity.max_abs_error:.1e} (allowed {parity.tolerance:.2g}), {report.seconds:.1f} s,"
        f" peak memory {peak_resident_bytes() / 1e6:.0f} MB"
    )
    if report.manifest.HasField("rounding"):
        typer.echo("\n".join(_rounding_lines(report.manifest, precision)))


def say_note(sentence: str) -> None:
    """Say what a person should know of a checkpoint: on stderr beside the progress, so that stdout has the result."""
    typer.echo(f"note: {sentence}", err=True)


def _rounding_lines(manifest: bundle_pb2.BundleManifest, precision: str) -> Iterator[str]:
    yield _quality_line(manifest)
    rounding = manifest.rounding
    if precision != Precision.INT8:
        yield _bits_line(rounding, precision)
        return
    from weft_export.rounding.choice import MAX_EFFECT  # noqa: PLC0415 - late: torch takes seconds to import

    if rounding.products or rounding.effect > MAX_EFFECT:
        yield _rounding_line(rounding)


def _quality_line(manifest: bundle_pb2.BundleManifest) -> str:
    if not manifest.HasField("quality"):
        rounded = any(state.data_type == bundle_pb2.DATA_TYPE_INT8 for state in manifest.states)
        source = "random requests" if manifest.HasField("image") else "texts of the exporter's own"
        scales = f"; keys and values are scaled by {source}" if rounded else ""
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


def _rounding_line(rounding: bundle_pb2.Rounding) -> str:
    from weft_export.rounding.choice import MAX_EFFECT  # noqa: PLC0415 - late: torch takes seconds to import

    num_floats = sum(product.is_float for product in rounding.products)
    num_smoothed = sum(product.strength > 0 for product in rounding.products)
    return (
        f"of {rounding.num_products} products {num_smoothed} were smoothed, and {num_floats} stay float32: rounding"
        f" moves an answer by {rounding.effect:.4f} nats instead of {rounding.plain_effect:.4f} (estimated)"
        f"{f'; more than {MAX_EFFECT} is not for int8' if rounding.effect > MAX_EFFECT else ''}"
    )


def _bits_line(rounding: bundle_pb2.Rounding, precision: str) -> str:
    from weft_export.rounding.block_choice import MAX_EFFECT  # noqa: PLC0415 - late: torch takes seconds to import

    counts = Counter(product.bits for product in rounding.products)
    said = " and ".join(f"{count} with weights of {bits} bits" for bits, count in sorted(counts.items()))
    too_much = f"; more than {MAX_EFFECT} is not for {precision}" if rounding.effect > MAX_EFFECT else ""
    return f"{said}: rounding moves an answer by {rounding.effect:.4f} nats (estimated){too_much}"


if __name__ == "__main__":
    export_app()
