"""`weft export --check`: what an export would do, in lines for people. Nothing is made, and no weight is read."""

import shutil
from dataclasses import replace
from pathlib import Path

from weft_export.checkpoints.checkpoint import Checkpoint
from weft_export.choices import PRECISIONS, Precision
from weft_export.errors import ExportError
from weft_export.estimate import Estimate, estimate, size, summary
from weft_export.export import as_asked, check_device, load
from weft_export.families.writer import Writer
from weft_export.options import ExportOptions
from weft_proto.tasks import TASKS
from weft_proto.v1 import bundle_pb2


def check(directory: Path, options: ExportOptions, num_slots: int, place: Path | None) -> list[str]:
    """Return what would be made of a checkpoint: a line each, and a row for each precision.

    place is where the bundle would be, if that is known. With paged, a slot is a sequence of the longest that holds
    blocks.

    Raises:
        CheckpointError: the checkpoint cannot be exported.
    """
    options.check_labels()
    loaded = load(directory, options, filled=False)
    checkpoint = as_asked(loaded.checkpoint, options)
    exact = estimate(checkpoint, PRECISIONS[Precision.FP32], num_slots)
    lines = [
        f"{checkpoint.family}, to {TASKS[checkpoint.task].name}: {exact.num_parameters:,} parameters",
        *_lengths(checkpoint),
        *_more_graphs(checkpoint, options),
        *([] if checkpoint.adapters is None else [_adapters(checkpoint.adapters)]),
        *(f"note: {note}" for note in loaded.notes),
    ]
    if exact.slot_bytes == 0:
        lines.append(f"{'precision':13}{'bundle':>10}{'server':>12}    an export takes about")
    else:
        lines.append(f"{'precision':13}{'bundle':>10}{'a slot':>10}{_slots(num_slots):>18}    an export takes about")
    for name, precision in PRECISIONS.items():
        try:
            check_device(checkpoint, precision)
            replace(options, precision=name, held_out=None).check_precision()
        except ExportError as error:
            lines.append(f"{name:13}not possible: {error}")
        else:
            lines.append(_row(name, estimate(checkpoint, precision, num_slots, mixed_runs=options.mixed_runs)))
    where = "the current directory" if place is None else place
    lines.append(f"free on the disk of {where}: {size(_free(place or Path.cwd()))}")
    return lines


def _row(name: str, made: Estimate) -> str:
    if made.slot_bytes == 0:
        return f"{name:13}{size(made.bundle_bytes):>10}{size(made.server_bytes):>12}    {summary(made)}"
    sizes = f"{size(made.bundle_bytes):>10}{size(made.slot_bytes):>10}{size(made.server_bytes):>18}"
    return f"{name:13}{sizes}    {summary(made)}"


def _slots(number: int) -> str:
    return f"server, {number} slots"


def _lengths(checkpoint: Checkpoint) -> list[str]:
    text = checkpoint.text
    if text is None:
        return []
    parts = []
    if text.max_source_tokens:
        parts.append(f"{text.max_source_tokens:,} tokens of a source")
    if text.max_total_tokens:
        what = "of an answer" if text.HasField("start_id") else "of a prompt and its answer"
        parts.append(f"{text.max_total_tokens:,} tokens {what}")
    return [f"at most {' and '.join(parts)}"]


def _more_graphs(checkpoint: Checkpoint, options: ExportOptions) -> list[str]:
    """Say which graphs are made beside those that answer."""
    lines = []
    if checkpoint.explained_heads:
        lines.append("with a graph that says what an answer attended to (--no-explain leaves it out)")
    if not options.no_score and isinstance(checkpoint.model, Writer) and checkpoint.model.scores:
        lines.append(
            "with a graph that says how probable a given answer is, not at fp16, bf16 and int4-fp16 (--no-score leaves "
            "it out)"
        )
    if options.mixed_runs:
        lines.append("with a graph that reads prompts in decode runs: a server holds the weights twice (--mixed-runs)")
    return lines


def _adapters(spec: bundle_pb2.AdapterSpec) -> str:
    num_bytes = sum(4 * layer.rank * (layer.inputs + layer.outputs) for layer in spec.layers)
    return (
        f"with places for adapters of {len(spec.layers)} products: one takes up to {size(num_bytes)} of a server, and"
        " as much again beside each row that has it (--adapters)"
    )


def _free(place: Path) -> int:
    home = next(path for path in place.absolute().parents if path.is_dir())
    return shutil.disk_usage(home).free
