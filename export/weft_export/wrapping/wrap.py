"""From an ONNX file that others made to a bundle: read, give it our ports, prove it, write."""

import tempfile
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import onnx_ir

from weft_export.bundle import provenance_of_file, write_manifest
from weft_export.checkpoints.picture import read_picture
from weft_export.checkpoints.tokenizer import check_tokenizers, encode_source, read_tokenizer
from weft_export.errors import CheckpointError, ExportError
from weft_export.graphs.onnx_graph import forget_origin
from weft_export.target import check_target, put
from weft_export.verification.session import runtime_version
from weft_export.verification.tolerances import SHARE_TOLERANCE
from weft_export.wrapping.adapting import adapt, wants_channels_last
from weft_export.wrapping.alone import check_alone
from weft_export.wrapping.giving import SHARES, VECTORS
from weft_export.wrapping.naming import complete, rename
from weft_export.wrapping.onnx_file import num_weights, read_onnx
from weft_export.wrapping.onnx_model import OnnxModel
from weft_export.wrapping.requests import Array, answer, batches_of, padded, run
from weft_export.wrapping.trial import Trial, TrialSession
from weft_proto.bundle_rules import EMBEDDING_TOLERANCE, FORMAT_VERSION, MAX_PROBABILITIES, MAX_READ_BYTES
from weft_proto.v1 import bundle_pb2

FAMILY = "onnx"
OnStage = Callable[[str, int, int], None]
_STAGES = ("reading the ONNX file", "giving it ports", "checking that rows are alone", "writing the bundle", "done")


@dataclass(frozen=True)
class Wrapped:
    """What a wrap made."""

    bundle: Path
    manifest: bundle_pb2.BundleManifest
    size_bytes: int
    seconds: float


def wrap_onnx(
    path: Path,
    bundle_dir: Path,
    described: OnnxModel,
    names: Mapping[str, str],
    *,
    force: bool = False,
    on_stage: OnStage = lambda *_: None,
) -> Wrapped:
    """Make a bundle of an .onnx file, whose ports are renamed by {old: new} first.

    Nobody but ONNX Runtime knows what is right. So the golden answer is that of the file as it is, and the bundle's
    graph is held to it.

    Raises:
        CheckpointError: the file, or what is said of it, is wrong.
        ExportError: its rows are not alone, or the bundle's path is not free.
    """
    started = time.monotonic()
    home = check_target(bundle_dir, force=force)
    try:
        with tempfile.TemporaryDirectory(prefix=".weft-wrap-", dir=home) as scratch:
            work = Path(scratch) / "bundle"
            work.mkdir()
            manifest = _build(
                path, work, described, names, lambda stage: on_stage(_STAGES[stage], stage, len(_STAGES) - 1)
            )
            size_bytes = sum(each.stat().st_size for each in work.iterdir())
            put(work, bundle_dir, Path(scratch) / "replaced" if force else None)
    except OSError as error:
        raise ExportError(f"cannot write {bundle_dir}: {error.strerror or error}") from error
    return Wrapped(bundle_dir, manifest, size_bytes, time.monotonic() - started)


def _build(
    path: Path, work: Path, described: OnnxModel, names: Mapping[str, str], on_stage: Callable[[int], None]
) -> bundle_pb2.BundleManifest:
    on_stage(0)
    model = read_onnx(path)
    check_tokenizers(described)
    asked = _asked(described)
    provenance = provenance_of_file(path, runtime_version(), model.graph.opset_imports[""], num_weights(model))
    precision = _precision(model)
    on_stage(1)
    names = complete(model, described, names)
    rename(model, names)
    adapt(model, described)
    forget_origin(model)
    onnx_ir.save(model, work / described.file_name, external_data=f"{described.file_name}.data")
    size = (work / described.file_name).stat().st_size
    if size > MAX_READ_BYTES:
        raise CheckpointError(f"the graph has {size} bytes without its weights; a server reads {MAX_READ_BYTES}")
    on_stage(2)
    with Trial(sum(each.stat().st_size for each in work.iterdir())) as trial:
        for num_threads in (1, 2):  # a product of one thread may be cut otherwise among two
            check_alone(_opened(trial, work / described.file_name, num_threads), described, model)
        sessions = _opened(trial, path), _opened(trial, work / described.file_name)
        tolerance = (EMBEDDING_TOLERANCE if described.row.embeds else SHARE_TOLERANCE)[precision]
        expected, errors = _compare(*sessions, described, names, asked, tolerance)
    on_stage(3)
    for name, content in described.files.items():
        (work / name).write_bytes(content)
    manifest = _manifest_of(described, precision, expected)
    parity = bundle_pb2.Parity(max_abs_error=max(errors), tolerance=tolerance, num_requests=len(errors))
    write_manifest(work, manifest, [described], parity=parity, provenance=provenance)
    on_stage(4)
    return manifest


def _opened(trial: Trial, path: Path, num_threads: int = 1) -> TrialSession:
    """Open a file in ONNX Runtime.

    Raises:
        CheckpointError: it cannot be loaded.
    """
    try:
        return trial.open(path, num_threads)
    except RuntimeError as error:
        raise CheckpointError(f"ONNX Runtime cannot load {path.name}: {str(error).splitlines()[0]:.300}") from error


def _asked(described: OnnxModel) -> Array:
    """Return what a graph reads of the golden request: ids int64 [length], or pixel_values."""
    if described.image is not None:
        name = described.golden.image_path
        return read_picture(name, described.files[name], described.image)
    tokenizer = read_tokenizer(described, described.text_spec.source_tokenizer)
    try:
        ids = np.array(encode_source(described, tokenizer, described.golden.text))
    except CheckpointError as error:
        raise CheckpointError(f"the golden text {error}") from error
    if (
        not described.row.embeds
        and described.row.labels_tokens
        and len(ids) * len(described.labels) > MAX_PROBABILITIES
    ):
        raise CheckpointError(
            f"the golden answer would have over {MAX_PROBABILITIES} probabilities: take a shorter text"
        )
    return ids


def _compare(
    given: TrialSession,
    made: TrialSession,
    described: OnnxModel,
    names: Mapping[str, str],
    asked: Array,
    tolerance: float,
) -> tuple[Array, list[float]]:
    """Return the golden answer of the file as it was given, and how far the bundle's graph is from it.

    The first gets each request alone and without padding.
    """
    requests = [asked, *(batch.requests[0] for batch in batches_of(described))]
    expected = [_alone(given, described, names, request) for request in requests]
    errors = []
    for request, right in zip(requests, expected, strict=True):
        feeds = {"pixel_values": request[None]}
        if described.text is not None:
            width = padded(len(request))
            ids = np.pad(request, (0, width - len(request)), constant_values=described.text.pad_id)
            feeds = {"input_ids": ids[None], "lengths": np.array([len(request)], np.int32)}
        out = answer(made, feeds, described)[0]
        actual = out[: len(request)] if described.row.labels_tokens else out
        # Of vectors it is a share of the length, as a server holds them to the golden one.
        length = max(float(np.linalg.norm(right)), 1e-12) if described.row.embeds else 1.0
        errors.append(float(np.abs(actual - right).max()) / length)
    if not max(errors) <= tolerance:  # said this way round, NaN fails
        raise ExportError(
            f"padding is read: the graph's answers differ by {max(errors):.2g} from those of the file as it was"
            f" given, which got the same requests without padding; {tolerance:g} are allowed"
        )
    return expected[0], errors


def _alone(session: TrialSession, described: OnnxModel, names: Mapping[str, str], request: Array) -> Array:
    """Return what the file as it was given says of a request: probabilities, or a vector."""
    length = len(request)
    values = {
        "input_ids": request[None],
        "lengths": np.array([length]),
        "attention_mask": np.ones((1, length)),
        "token_type_ids": np.zeros((1, length)),
        "position_ids": np.arange(length)[None],
    }
    if described.image is not None:
        values["pixel_values"] = as_given(request[None], session, described)
    known = VECTORS if described.row.embeds else SHARES
    feeds = {port.name: values[names.get(port.name, port.name)] for port in session.get_inputs()}
    ports = {port.name: names.get(port.name, port.name) for port in session.get_outputs()}
    name = min((name for name, new in ports.items() if new in known), key=lambda name: known.index(ports[name]))
    out: Array = run(session, feeds, [name])[0][0].astype(np.float32)
    return vector_of(out, described) if described.row.embeds else _shares(out, is_logits=ports[name] == "logits")


def _shares(out: Array, *, is_logits: bool) -> Array:
    if is_logits:
        out = np.exp(out - out.max(axis=-1, keepdims=True))
        out /= out.sum(axis=-1, keepdims=True)
    return out


def vector_of(out: Array, described: OnnxModel) -> Array:
    """Return the vector of a request, whose places are all real: out is [places, width], or [width] already."""
    pools = {
        bundle_pb2.POOLING_FIRST: lambda places: places[0],
        bundle_pb2.POOLING_LAST: lambda places: places[-1],
        bundle_pb2.POOLING_MEAN: lambda places: places.mean(axis=0),
        bundle_pb2.POOLING_MAX: lambda places: places.max(axis=0),
    }
    vector: Array = out if out.ndim == 1 else pools[described.embedding_spec.pooling](out)
    return vector / max(float(np.linalg.norm(vector)), 1e-12) if described.embedding_spec.normalized else vector


def as_given(pixels: Array, session: TrialSession, described: OnnxModel) -> Array:
    """Return pixel_values [1, channels, height, width] in the order in which the file as it was given takes them."""
    if described.is_bgr:
        pixels = pixels[:, ::-1]
    (port,) = session.get_inputs()
    return pixels.transpose(0, 2, 3, 1) if wants_channels_last(port.shape, described.image_spec.channels) else pixels


def _precision(model: onnx_ir.Model) -> bundle_pb2.Precision.ValueType:
    types = {value.dtype for value in model.graph.initializers.values()}
    if onnx_ir.DataType.BFLOAT16 in types:
        raise CheckpointError("the weights are bfloat16, which ONNX Runtime does not compute in on CPU; take float32")
    return bundle_pb2.PRECISION_FP16 if onnx_ir.DataType.FLOAT16 in types else bundle_pb2.PRECISION_FP32


def _manifest_of(
    described: OnnxModel, precision: bundle_pb2.Precision.ValueType, expected: Array
) -> bundle_pb2.BundleManifest:
    manifest = bundle_pb2.BundleManifest(
        format_version=FORMAT_VERSION,
        task=described.task,
        family=FAMILY,
        description=described.description,
        precision=precision,
        text=described.text,
        image=described.image,
        embedding=described.embedding,
        labels=described.labels,
        golden=described.golden,
    )
    answer_field = manifest.golden.embedding if described.row.embeds else manifest.golden.probabilities
    answer_field.extend(expected.flatten().tolist())
    return manifest
