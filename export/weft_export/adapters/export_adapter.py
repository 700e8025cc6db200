"""From an adapter and its base to an adapter beside the bundle: merge, factor, check parity, write."""

import hashlib
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

from google.protobuf import json_format

from weft_export.adapters.beside import beside, rounded_base, smoothed
from weft_export.adapters.layout import check_layout
from weft_export.adapters.merging import pairs_of, write_merged
from weft_export.adapters.peft import PICKLE, WEIGHTS, Adapter, read_adapter
from weft_export.bundle import manifest_of, provenance_of
from weft_export.checkpoints.checkpoint import Checkpoint
from weft_export.checkpoints.directory import LoadedCheckpoint
from weft_export.checkpoints.files import read_file
from weft_export.checkpoints.formats import MODULES, check_adaptable, is_foreign
from weft_export.choices import POOLINGS
from weft_export.converters.convert import EMBEDDERS
from weft_export.errors import CheckpointError, ExportError
from weft_export.export import examples_of, load
from weft_export.families.writer import Writer
from weft_export.options import DEFAULT_OPTIONS, ExportOptions
from weft_export.verification.golden import GoldenRequest
from weft_export.verification.parity import check_parity
from weft_export.verification.session import Pairs, runtime_version
from weft_proto.bundle_rules import (
    ADAPTER_FILE,
    ADAPTER_NAME,
    ADAPTERS_DIR,
    FORMAT_VERSION,
    LIMITS,
    MANIFEST_FILE,
    MAX_ADAPTER_BYTES,
    ROUNDED,
    TARGET_WEIGHTS,
)
from weft_proto.first_line import first_line
from weft_proto.tasks import TASKS
from weft_proto.v1 import bundle_pb2, common_pb2

WEIGHTS_OUT = "adapter.bin"
_POOLINGS = {names.number: pooling for pooling, names in POOLINGS.items()}
# What follows from the options that a bundle was exported with.
_CHOSEN = ("task", "family", "labels", "scoring", "embedding")
OnStage = Callable[[str], None]


@dataclass(frozen=True)
class AdapterReport:
    """What was made. notes: sentences for who exports it."""

    directory: Path
    manifest: bundle_pb2.AdapterManifest
    size_bytes: int
    seconds: float
    notes: tuple[str, ...] = ()


def export_adapter(
    adapter: Path,
    bundle: Path,
    checkpoint: Path,
    *,
    name: str | None = None,
    golden: str | None = None,
    description: str = "",
    held_out: Path | None = None,
    force: bool = False,
    on_stage: OnStage = lambda _: None,
) -> AdapterReport:
    """Export an adapter of PEFT's format to <repository>/<model>/adapters/<version>/<name>, beside its bundle.

    checkpoint is what the bundle was made of. name is by default that of the adapter's directory. golden is the text
    that a server asks of it before it answers, by default the bundle's. held_out is for a bundle that is rounded: the
    file that it was exported with, if that was not the checkpoint's own.

    Raises:
        CheckpointError: the adapter or the checkpoint is broken, or not of this bundle, or not supported.
        ParityError: torch and ONNX Runtime disagree.
        ExportError: the bundle takes no adapters, or the adapter exists already and force is not set.
    """
    started = time.monotonic()
    manifest, digest = _read_base(bundle)
    check_adaptable(checkpoint)
    place = _place(bundle, name or adapter.resolve().name, force=force)
    most = LIMITS["AdapterManifest"]["description"].maximum or 0
    if len(description) > most:
        raise ExportError(f"the description has {len(description)} characters; at most {most} are read")
    on_stage("reading the adapter")
    read = read_adapter(adapter)
    on_stage("adding it to the checkpoint")
    options = _options(manifest, checkpoint, golden)
    loaded = load(checkpoint, options)
    base = _base(loaded, manifest, held_out)
    with tempfile.TemporaryDirectory(prefix="weft-adapter-") as scratch:
        by_weight = write_merged(checkpoint, read, Path(scratch))
        right = load(Path(scratch), options).checkpoint
        pairs = pairs_of(loaded.checkpoint.model, right.model, manifest.adapters, loaded.made_of)
        check_layout(loaded.checkpoint.model, pairs, by_weight, loaded.made_of)
        pairs = smoothed(pairs, base)
        if manifest.precision in ROUNDED:
            right = beside(base, pairs)
        del loaded, base
        right = _asking(right, manifest, bundle, golden)
        right = replace(right, explains=_has(manifest, bundle_pb2.GRAPH_ROLE_EXPLAIN))
        if isinstance(right.model, Writer) and not _tells_of_target(manifest):
            right.model.explains_target = False
        request = GoldenRequest(right, manifest.precision, may_make=False)
        request.answer()
        on_stage("checking parity")
        parity = check_parity(
            right,
            bundle,
            manifest.precision,
            mixed_runs=_has(manifest, bundle_pb2.GRAPH_ROLE_MIXED),
            scores=_has(manifest, bundle_pb2.GRAPH_ROLE_SCORE),
            adapter=pairs,
        )
        answer = request.answer(parity.max_abs_error)
    on_stage("writing it")
    content = weights_of(pairs)
    made = bundle_pb2.AdapterManifest(
        format_version=FORMAT_VERSION,
        description=description,
        base_sha256=digest,
        weights=bundle_pb2.BundleFile(
            path=WEIGHTS_OUT, sha256=hashlib.sha256(content).hexdigest(), size_bytes=len(content)
        ),
        layers=[bundle_pb2.AdapterLayer(name=layer, rank=a.shape[1]) for layer, (a, _) in pairs.items()],
        golden=answer,
        parity=parity,
        provenance=_provenance(right, read.weights, len(content) // 4),
    )
    _write(place, made, content)
    return AdapterReport(place, made, len(content), time.monotonic() - started, _notes(read))


def weights_of(pairs: Pairs) -> bytes:
    """Return A and B of each layer, one behind another, float32 and little-endian."""
    return b"".join(matrix.astype("<f4").tobytes() for pair in pairs.values() for matrix in pair)


def _read_base(bundle: Path) -> tuple[bundle_pb2.BundleManifest, str]:
    """Return a bundle's manifest, and its digest."""
    content = read_file(bundle / MANIFEST_FILE)
    try:
        manifest = json_format.Parse(content, bundle_pb2.BundleManifest())
    except (json_format.ParseError, ValueError) as error:
        raise ExportError(f"{bundle / MANIFEST_FILE} is no manifest: {first_line(error)}") from error
    if not manifest.adapters.layers:
        raise ExportError(f"{bundle} takes no adapters: export it again with --adapters RANK")
    return manifest, hashlib.sha256(content).hexdigest()


def _place(bundle: Path, name: str, *, force: bool) -> Path:
    if not ADAPTER_NAME.fullmatch(name):
        raise ExportError(
            f"an adapter's name is [a-z0-9][a-z0-9._-]*, at most 128 characters, not {name!r:.140}; give it one by"
            " --name"
        )
    whole = bundle.absolute()
    place = whole.parent / ADAPTERS_DIR / whole.name / name
    if place.exists() and not force:
        raise ExportError(f"{place} exists already; --force replaces it")
    if place.exists() and not (place / ADAPTER_FILE).is_file():
        raise ExportError(f"{place} has no {ADAPTER_FILE}; --force replaces an adapter")
    return place


def _options(manifest: bundle_pb2.BundleManifest, checkpoint: Path, golden: str | None) -> ExportOptions:
    """Return the options that a bundle was made with, as far as its graphs show them."""
    if golden is not None and not TASKS[manifest.task].takes_text:
        raise ExportError("a golden text is for a model that takes texts; the bundle's own file is asked")
    if golden is not None and manifest.golden.image_path and Path(golden).is_file():
        raise ExportError(f"{golden} is a file: the bundle's own picture is asked, and this is the question about it")
    if not is_foreign(checkpoint):
        return DEFAULT_OPTIONS
    text, task = manifest.text, TASKS[manifest.task]
    reads_source = task.takes_language
    # A file that says the pooling goes before.
    is_pooled = manifest.family in EMBEDDERS and not (checkpoint / MODULES).exists()
    # One of a single label always judges two texts, and so does one that extracts.
    is_judge = manifest.task == common_pb2.TASK_CLASSIFY_TEXT and text.HasField("separator_id")
    return ExportOptions(
        max_tokens=(text.max_total_tokens if task.writes_text else text.max_source_tokens) or None,
        max_source_tokens=text.max_source_tokens if reads_source else None,
        golden=golden or manifest.golden.text or None,
        pooling=_POOLINGS[manifest.embedding.pooling] if is_pooled else None,
        pairs=is_judge and len(manifest.labels) > 1,
        truncate=bool(text.truncation_side),
    )


def _asking(right: Checkpoint, manifest: bundle_pb2.BundleManifest, bundle: Path, golden: str | None) -> Checkpoint:
    """Return a checkpoint that is asked what a server asks of the adapter: the bundle's own file, and a text."""
    asked = bundle_pb2.Golden()
    asked.CopyFrom(right.golden)
    if golden is not None:
        setattr(asked, "question" if right.sees else "text", golden)
    elif manifest.golden.question:
        asked.question = manifest.golden.question
    files = dict(right.files)
    for kind in ("image_path", "audio_path"):
        if name := getattr(manifest.golden, kind):
            files.pop(getattr(asked, kind), None)
            setattr(asked, kind, name)
            files[name] = read_file(bundle / name)
    return replace(right, golden=asked, files=files)


def _base(loaded: LoadedCheckpoint, manifest: bundle_pb2.BundleManifest, held_out: Path | None) -> Checkpoint:
    """Return the base as the bundle has it. Raises CheckpointError if the bundle was made of another one."""
    provenance = provenance_of(loaded.checkpoint, loaded.weights, "")
    if provenance.checkpoint_sha256 != manifest.provenance.checkpoint_sha256:
        raise CheckpointError("the bundle was made of another checkpoint: its weights have another digest")
    examples = examples_of(loaded.checkpoint, manifest.precision, held_out, loaded.held_out)
    base = rounded_base(loaded.checkpoint, manifest, examples)
    same = manifest_of(base, manifest.precision, manifest.golden)
    if list(same.states) != list(manifest.states):
        raise CheckpointError("the bundle was exported with other lengths than can be told from it")
    if any(getattr(same, name) != getattr(manifest, name) for name in _CHOSEN):
        raise CheckpointError("the bundle was exported with other options than can be told from it, such as --labels")
    return base


def _tells_of_target(manifest: bundle_pb2.BundleManifest) -> bool:
    return any(port.name == TARGET_WEIGHTS for graph in manifest.graphs for port in graph.outputs)


def _has(manifest: bundle_pb2.BundleManifest, role: bundle_pb2.GraphRole.ValueType) -> bool:
    return any(graph.role == role for graph in manifest.graphs)


def _provenance(checkpoint: Checkpoint, weights: Path, num_parameters: int) -> bundle_pb2.Provenance:
    provenance = provenance_of(checkpoint, [weights], runtime_version())
    provenance.num_parameters = num_parameters
    return provenance


def _notes(read: Adapter) -> tuple[str, ...]:
    if read.weights.name == PICKLE:
        return (f"{PICKLE} is a pickle, read without running code; {WEIGHTS} would be safer to pass on",)
    return ()


def _write(place: Path, manifest: bundle_pb2.AdapterManifest, content: bytes) -> None:
    """Write an adapter beside its place, and move it there: a server may look at any time."""
    data = (json_format.MessageToJson(manifest, indent=2, ensure_ascii=False) + "\n").encode()
    if len(data) > MAX_ADAPTER_BYTES:
        raise ExportError(f"{ADAPTER_FILE} would be larger than a server reads")
    place.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=".weft-adapter-", dir=place.parent) as scratch:
        made = Path(scratch) / "made"
        made.mkdir()
        (made / manifest.weights.path).write_bytes(content)
        (made / ADAPTER_FILE).write_bytes(data)
        if place.exists():
            place.rename(Path(scratch) / "replaced")
        made.rename(place)
