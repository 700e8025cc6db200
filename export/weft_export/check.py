"""`weft export --check`: what an export would do, in lines for people. Nothing is made, and no weight is read."""

import shutil
from dataclasses import replace
from pathlib import Path

from weft_export.checkpoints.checkpoint import Checkpoint
from weft_export.checkpoints.tokenizer import check_tokenizers
from weft_export.converters.converter import Choices
from weft_export.errors import ExportError
from weft_export.estimate import Estimate, estimate, size, told
from weft_export.export import (
    check_bf16,
    check_mixed_runs,
    check_paged,
    load,
    spec_of,
)
from weft_export.families.writer import Writer
from weft_export.graphs.adapting import Adaptable
from weft_export.preconditions import PRECISIONS, check_labels, check_precision
from weft_proto.tasks import TASKS
from weft_proto.v1 import bundle_pb2


def check(
    directory: Path,
    choices: Choices,
    num_slots: int,
    place: Path | None,
    *,
    explains: bool = True,
    scores: bool = True,
    mixed_runs: bool = False,
    adapters: Adaptable | None = None,
    paged: bool = False,
) -> list[str]:
    """Return what would be made of a checkpoint: a line each, and a row for each precision.

    place is where the bundle would be, if that is known. Without explains, no graph says what was attended to.
    Without scores, none says how probable a given answer is. With mixed_runs, one reads prompts in decode runs.
    adapters says which products take adapters.
    With paged, keys and values lie in blocks, and a slot is a sequence of the longest that holds blocks.

    Raises:
        CheckpointError: the checkpoint cannot be exported.
    """
    check_labels(choices.labels, adapters=adapters is not None)
    loaded = load(directory, choices, filled=False)
    checkpoint = replace(loaded.checkpoint, explains=explains, paged=paged)
    check_tokenizers(checkpoint)
    check_mixed_runs(checkpoint, mixed_runs=mixed_runs)
    check_paged(checkpoint)
    exact = estimate(checkpoint, PRECISIONS["fp32"], num_slots)
    lines = [
        f"{checkpoint.family}, to {TASKS[checkpoint.task].name}: {exact.num_parameters:,} parameters",
        *_lengths(checkpoint),
        *_more_graphs(checkpoint, scores=scores, mixed_runs=mixed_runs),
        *([] if adapters is None else [_adapters(spec_of(checkpoint, adapters))]),
        *(f"note: {note}" for note in loaded.notes),
    ]
    if exact.slot_bytes == 0:
        lines.append(f"{'precision':13}{'bundle':>10}{'server':>12}    an export takes about")
    else:
        lines.append(f"{'precision':13}{'bundle':>10}{'a slot':>10}{_slots(num_slots):>18}    an export takes about")
    for name, precision in PRECISIONS.items():
        try:
            check_bf16(checkpoint, precision)
            check_precision(precision, mixed_runs=mixed_runs, adapters=adapters is not None, paged=paged)
        except ExportError as error:
            lines.append(f"{name:13}not possible: {error}")
        else:
            lines.append(_row(name, estimate(checkpoint, precision, num_slots, mixed_runs=mixed_runs)))
    where = "the current directory" if place is None else place
    lines.append(f"free on the disk of {where}: {size(_free(place or Path.cwd()))}")
    return lines


def _row(name: str, made: Estimate) -> str:
    if made.slot_bytes == 0:
        return f"{name:13}{size(made.bundle_bytes):>10}{size(made.server_bytes):>12}    {told(made)}"
    sizes = f"{size(made.bundle_bytes):>10}{size(made.slot_bytes):>10}{size(made.server_bytes):>18}"
    return f"{name:13}{sizes}    {told(made)}"


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


def _more_graphs(checkpoint: Checkpoint, *, scores: bool, mixed_runs: bool) -> list[str]:
    """Say which graphs are made beside those that answer."""
    lines = []
    if checkpoint.explained_heads:
        lines.append("with a graph that says what an answer attended to (--no-explain leaves it out)")
    if scores and isinstance(checkpoint.model, Writer) and checkpoint.model.scores:
        lines.append(
            "with a graph that says how probable a given answer is, not at fp16 and bf16 (--no-score leaves it out)"
        )
    if mixed_runs:
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
