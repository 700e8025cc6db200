"""From a checkpoint to a bundle: load, trace, check parity, write. A bundle that fails is never seen."""

import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from torch import nn

from weft_export import failed
from weft_export.bundle import manifest_of, provenance_of, write_manifest
from weft_export.checkpoints.checkpoint import Checkpoint
from weft_export.checkpoints.directory import LoadedCheckpoint, load_checkpoint
from weft_export.checkpoints.files import HELD_OUT_FILE, check_regular
from weft_export.checkpoints.formats import is_foreign, is_gguf, is_pth
from weft_export.checkpoints.golden_requests import with_golden
from weft_export.checkpoints.sharing import sharing
from weft_export.checkpoints.tokenizer import check_tokenizers
from weft_export.checkpoints.weights import WEIGHTS_FILE
from weft_export.choices import BLOCKS
from weft_export.errors import ExportError, ParityError
from weft_export.estimate import estimate, summary
from weft_export.families.writer import Writer
from weft_export.graphs.answering import torch_run
from weft_export.graphs.graphs import Graph, graphs_of
from weft_export.graphs.onnx_graph import write_graph
from weft_export.graphs.weight_files import WeightFiles
from weft_export.options import DEFAULT_OPTIONS, ExportOptions
from weft_export.target import check_target, put
from weft_export.verification.golden import GoldenRequest, check_golden
from weft_export.verification.parity import check_parity
from weft_export.verification.runtime import onnx_run
from weft_export.verification.session import runtime_version
from weft_export.verification.tolerance import Figures
from weft_proto.bundle_rules import HOST_PRECISIONS, ROUNDED, precision_name
from weft_proto.tasks import TASKS
from weft_proto.v1 import bundle_pb2

if TYPE_CHECKING:
    from weft_export.checkpoints.held_out import Example

OnStage = Callable[[str, int, int], None]
"""Called with the name of the stage that begins, how many are done, and how many there are."""
OnNote = Callable[[str], None]
"""Called with a sentence for who exports a checkpoint."""


@dataclass(frozen=True)
class Report:
    """What an export made.

    unscored: what kind of model it is of, if nothing scores such answers.
    """

    bundle: Path
    manifest: bundle_pb2.BundleManifest
    size_bytes: int
    seconds: float
    unscored: str | None


def export_checkpoint(
    checkpoint_dir: Path,
    bundle_dir: Path,
    options: ExportOptions = DEFAULT_OPTIONS,
    *,
    force: bool = False,
    failed_in: Path | None = None,
    on_stage: OnStage = lambda *_: None,
    on_note: OnNote = lambda _: None,
) -> Report:
    """Export a checkpoint to the bundle directory <repository>/<name>/<version>.

    The checkpoint is one of ours, a Hugging Face directory or a GGUF file.

    on_note gets what a person should know of the checkpoint as soon as it is read: what follows takes minutes.

    The bundle is made beside its place, and moved there once it has passed. If a proof fails, its graphs stay in a
    folder that the error names: of failed_in, or else beside the bundle. The next export of the same takes them from
    there. Any other failure leaves nothing behind.

    Raises:
        CheckpointError: the checkpoint is broken.
        ParityError: torch and ONNX Runtime disagree.
        QualityError: rounding costs too much of the quality.
        ExportError: the bundle's path is not of that form, or it exists and force is not set. The three above are
            ExportErrors too.
    """
    started = time.monotonic()
    options.check_precision()
    options.check_labels()
    home = check_target(bundle_dir, force=force)
    try:
        with tempfile.TemporaryDirectory(prefix=".weft-export-", dir=home) as scratch:
            work = Path(scratch) / "bundle"
            work.mkdir()
            on_stage("loading the checkpoint", 0, 1)
            loaded = load(checkpoint_dir, options)
            for note in loaded.notes:
                on_note(note)
            manifest = _build(loaded, work, (checkpoint_dir, failed_in or home), options, on_stage, on_note)
            size_bytes = sum(path.stat().st_size for path in work.iterdir())
            put(work, bundle_dir, Path(scratch) / "replaced" if force else None)
    except OSError as error:
        raise ExportError(f"cannot write {bundle_dir}: {error.strerror or error}") from error
    return Report(bundle_dir, manifest, size_bytes, time.monotonic() - started, loaded.checkpoint.unscored)


def load(directory: Path, options: ExportOptions, *, filled: bool = True) -> LoadedCheckpoint:
    """Read a checkpoint of ours, a Hugging Face directory, or a file of GGUF or RWKV.

    Not filled, its weights stay on meta.
    """
    if is_gguf(directory):
        from weft_export.converters.gguf.convert_file import convert_file  # noqa: PLC0415 - late: for these checkpoints alone

        loaded = convert_file(directory, options, filled=filled)
    elif is_pth(directory):
        from weft_export.converters.rwkv_file import convert_file as convert_pth  # noqa: PLC0415 - same

        loaded = convert_pth(directory, options, filled=filled)
    elif is_foreign(directory):
        from weft_export.converters.convert import convert  # noqa: PLC0415 - same

        loaded = convert(directory, options, filled=filled)
    elif options.of_hugging_face:
        raise ExportError("lengths, a description and labels stand in config.json of a checkpoint of this kind")
    else:
        checkpoint = load_checkpoint(directory, filled=filled)
        loaded = LoadedCheckpoint(checkpoint, (directory / WEIGHTS_FILE,), directory / HELD_OUT_FILE, ())
    if options.golden is None:
        return loaded
    return replace(loaded, checkpoint=with_golden(loaded.checkpoint, options.golden))


def _build(
    loaded: LoadedCheckpoint,
    work: Path,
    places: tuple[Path, Path],
    options: ExportOptions,
    on_stage: OnStage,
    on_note: OnNote,
) -> bundle_pb2.BundleManifest:
    original, precision, mixed_runs = as_asked(loaded.checkpoint, options), options.number, options.mixed_runs
    check_device(original, precision)
    examples = examples_of(original, precision, options.held_out, loaded.held_out)
    checkpoint = original
    if precision in ROUNDED:
        on_stage("measuring what rounding does", 0, 1)
        checkpoint = rounded(original, precision, examples, on_note)
    checkpoint = prepared(with_rounded_caches(checkpoint, original, examples) if options.rounded_caches else checkpoint)
    on_stage(f"this takes about {summary(estimate(original, precision))}", 0, 1)
    version = runtime_version()
    # What no server would take is known before anything takes long.
    request = GoldenRequest(checkpoint, precision)
    manifest_of(checkpoint, precision, request.answer())
    # bf16 and fp16 are for devices, which have not been tried with it.
    scores = not options.no_score and precision in HOST_PRECISIONS
    graphs = graphs_of(checkpoint, precision, mixed_runs=mixed_runs, scores=scores)
    if checkpoint.adapters is not None:
        from weft_export.graphs.adapting import adapted  # noqa: PLC0415 - late: for bundles that take adapters

        graphs = [adapted(graph, checkpoint.adapters) for graph in graphs]
    num_stages = len(graphs) + (4 if examples else 3)
    kept = _trace(graphs, work, checkpoint, precision, places, lambda name, done: on_stage(name, done, num_stages))
    figures = Figures()
    try:
        on_stage("checking parity", len(graphs) + 1, num_stages)
        parity = check_parity(checkpoint, work, precision, mixed_runs=mixed_runs, scores=scores, figures=figures)
        golden = request.answer(parity.max_abs_error)  # cut again, now that the error is known
        checkpoint = replace(checkpoint, files=request.files, golden=golden)
        run = onnx_run(graphs, work)
        check_golden(checkpoint, golden, run, precision)
        quality = None
        if examples:
            on_stage("measuring quality", num_stages - 2, num_stages)
            from weft_export.verification.quality import check_quality  # noqa: PLC0415 - late: for rounded models

            exact = torch_run(graphs_of(original, bundle_pb2.PRECISION_FP32))
            quality = check_quality(original, exact, run, examples, precision_name(precision))
    except ExportError as error:
        directory, home = places
        place = kept or failed.place_of(home, directory, checkpoint, precision, graphs)
        failed.leave(work, place, figures)
        stay = (
            f"The graphs and {failed.FIGURES_FILE} stay in {place}: the next export of the same takes them from there"
        )
        rounding = checkpoint.rounding if isinstance(error, ParityError) else None
        why = _too_coarse(rounding, precision) if rounding is not None else ""
        raise type(error)(f"{error}{why}. {stay}") from error
    if request.files != original.files:
        on_note("the golden request has no clear answer: the bundle has one that the exporter made")
    on_stage("writing the bundle", num_stages - 1, num_stages)
    for name, content in checkpoint.files.items():
        (work / name).write_bytes(content)
    provenance = provenance_of(original, loaded.weights, version)
    manifest = manifest_of(checkpoint, precision, golden)
    write_manifest(work, manifest, graphs, parity=parity, provenance=provenance, quality=quality)
    on_stage("done", num_stages, num_stages)
    return manifest


def _too_coarse(rounding: bundle_pb2.Rounding, precision: bundle_pb2.Precision.ValueType) -> str:
    """Return what an error says of weights in blocks that lose more than is meant; else nothing.

    Such a model makes much of last bits too, and torch and ONNX Runtime may be far apart without a fault of either.
    """
    from weft_export.layers.block_linear import goes_in_pairs  # noqa: PLC0415 - late: for rounded models
    from weft_export.quantization.choice import MAX_BLOCK_EFFECT  # noqa: PLC0415 - same
    from weft_export.verification.quality import LESS  # noqa: PLC0415 - same

    is_large = any(goes_in_pairs(product.bits, product.block_size) for product in rounding.products)
    if is_large and precision in BLOCKS:
        return f"; --max-block-size {BLOCKS[precision][-1]} loses less"
    name = precision_name(precision)
    if name not in LESS or rounding.effect <= MAX_BLOCK_EFFECT:
        return ""
    moved = f"rounding moves an answer by {rounding.effect:.4f} nats (estimated)"
    return f"; {moved}, and more than {MAX_BLOCK_EFFECT} is not for {name}{LESS[name]}"


def _trace(
    graphs: list[Graph],
    work: Path,
    checkpoint: Checkpoint,
    precision: bundle_pb2.Precision.ValueType,
    places: tuple[Path, Path],
    on_graph: Callable[[str, int], None],
) -> Path | None:
    """Write the graphs into `work`, or take those there that a failed export left. Return where they stayed, if so."""
    directory, home = places
    if failed.any_in(home):
        place = failed.place_of(home, directory, checkpoint, precision, graphs)
        if failed.take(place, work):
            on_graph("taking the graphs of an export that failed", len(graphs))
            return place
    files = WeightFiles()
    for index, graph in enumerate(graphs):
        on_graph(f"exporting {graph.file_name}", index + 1)
        write_graph(graph, work, files)
    return None


def with_rounded_caches(checkpoint: Checkpoint, original: Checkpoint, examples: Sequence["Example"]) -> Checkpoint:
    """Return a checkpoint whose keys and values are 8-bit integers, by what they are in the original."""
    from weft_export.quantization.integer_products import ranges_of, round_caches  # noqa: PLC0415 - late: for these alone

    model = sharing(checkpoint.model)
    round_caches(model, ranges_of(original, examples))
    return replace(checkpoint, model=model)


def prepared(checkpoint: Checkpoint) -> Checkpoint:
    """Return a checkpoint whose products take the adapters that it says, over its weights."""
    if checkpoint.adapters is None:
        return checkpoint
    from weft_export.graphs.adapting import attach  # noqa: PLC0415 - late: for bundles that take adapters

    model = sharing(checkpoint.model)
    attach(model, checkpoint.adapters)
    return replace(checkpoint, model=model)


def as_asked(checkpoint: Checkpoint, options: ExportOptions) -> Checkpoint:
    """Return a checkpoint that says what options ask of its bundle. Raises ExportError where its model cannot."""
    asked = replace(
        checkpoint,
        explains=not options.no_explain,
        paged=options.paged,
        max_block_size=options.max_block_size,
    )
    _check_paged(asked)
    if options.adapters is not None:
        if TASKS[asked.task].matches:
            raise ExportError("adapters are not for models that match")
        if TASKS[asked.task].labels_frames:
            raise ExportError("adapters are not for models that label the moments of a recording")
        if why := getattr(asked.model, "unadapted", None):
            raise ExportError(f"adapters are not for {why}")
        if _keeps_states(asked):
            raise ExportError("adapters are not for models that keep states beside attention")
        from weft_export.graphs.adapting import adapter_spec  # noqa: PLC0415 - late: for bundles that take adapters

        asked = replace(asked, adapters=adapter_spec(asked.model, options.adapters, options.adapted_products))
    check_tokenizers(asked)
    if options.mixed_runs and not getattr(asked.model, "mixes", False):
        if _keeps_states(asked):
            raise ExportError("mixed runs are not for models that keep states beside attention")
        raise ExportError("mixed runs are for models that generate: others have no prompt to read")
    return asked


def examples_of(
    checkpoint: Checkpoint, precision: bundle_pb2.Precision.ValueType, given: Path | None, default: Path
) -> list["Example"]:
    """Return the held-out examples that rounding is measured on: those of a file that was given, or of the default."""
    if precision not in ROUNDED:
        return []
    if checkpoint.unscored is not None:
        if given is not None:
            raise ExportError(f"held-out examples are not for {checkpoint.unscored}: nothing scores them")
        return []
    if given is None:
        if not default.exists():
            return []
        check_regular(default)
    from weft_export.checkpoints.held_out import read_held_out  # noqa: PLC0415 - late: for rounded models

    return read_held_out(given or default, checkpoint)


def rounded(
    checkpoint: Checkpoint,
    precision: bundle_pb2.Precision.ValueType,
    examples: Sequence["Example"],
    on_note: OnNote,
) -> Checkpoint:
    """Return a checkpoint as a precision that rounds has it, and say of what nothing was measured."""
    from weft_export.quantization.quantized import quantized  # noqa: PLC0415 - late: for these precisions alone
    from weft_export.quantization.unasked import note_of_experts  # noqa: PLC0415 - same

    if note := note_of_experts(checkpoint, examples):
        on_note(note)
    return quantized(checkpoint, precision, examples)


def check_device(checkpoint: Checkpoint, precision: bundle_pb2.Precision.ValueType) -> None:
    """Raise ExportError for a model that CUDA cannot run in this precision, which is for it."""
    if precision in HOST_PRECISIONS:
        return
    from weft_export.layers.experts import Experts  # noqa: PLC0415 - late: for these precisions alone

    if _keeps_states(checkpoint):
        raise ExportError(
            "models that keep states beside attention run on CPU: fp16, bf16 and int4-fp16 are not for them; take fp32"
            " or int8"
        )
    if isinstance(checkpoint.model, Writer) and checkpoint.model.bidirectional:
        raise ExportError(
            "models whose prompts are read in both directions run on CPU: fp16, bf16 and int4-fp16 are not for them;"
            " take fp32 or int8"
        )
    if any(isinstance(module, Experts) for module in checkpoint.model.modules()):
        # How many rows an expert reads is a shape that a device would have to tell the host, in each layer.
        raise ExportError(
            "mixtures of experts run on CPU: fp16, bf16, int4-fp16 and --paged are not for them; take fp32 or int8"
        )
    if precision != bundle_pb2.PRECISION_BF16:
        return
    from weft_export.layers.recurrent import Recurrence  # noqa: PLC0415 - late: for this precision alone

    # What ONNX Runtime's CUDA kernels of our opset know in float32 and float16 only.
    unknown = (Recurrence, nn.Conv1d, nn.Conv2d, nn.BatchNorm1d, nn.BatchNorm2d)
    if any(isinstance(module, unknown) for module in checkpoint.model.modules()):
        raise ExportError("bf16 is not for models that recur or convolve: CUDA has no such kernels; take fp16")


def _keeps_states(checkpoint: Checkpoint) -> bool:
    """Whether some layers of a model that attends keep a state of constant size instead."""
    return isinstance(checkpoint.model, Writer) and checkpoint.model.reads_pieces


def _check_paged(checkpoint: Checkpoint) -> None:
    """Raise ExportError for a model whose caches shall lie in blocks, and cannot."""
    if not checkpoint.paged:
        return
    why = checkpoint.model.unpaged if isinstance(checkpoint.model, Writer) else "it has no caches"
    if why is not None:
        raise ExportError(f"--paged is not for {checkpoint.family}: {why}")
