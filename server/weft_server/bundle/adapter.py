"""Reads an adapter that lies beside its bundle, and refuses a wrong one. Nothing of it is run here."""

import hashlib
from pathlib import Path

import numpy as np
from google.protobuf import json_format

from weft_proto.bundle_rules import (
    ADAPTER_FILE,
    ADAPTER_NAME,
    ADAPTERS_DIR,
    FORMAT_VERSION,
    MAX_ADAPTER_BYTES,
)
from weft_proto.first_line import first_line
from weft_proto.tasks import TASKS
from weft_proto.v1 import bundle_pb2
from weft_server.bundle.files import read_small_file, verify_file, verify_names
from weft_server.bundle.limits import verify_limits
from weft_server.bundle.load import Bundle, has_few_entries
from weft_server.errors import BundleError, require
from weft_server.sequence import Adapter

_FLOAT_BYTES = 4
# Of a golden answer. That of a model that fills masks has scores beside its token_ids.
_ANSWERS = ("token_ids", "probabilities", "scores", "embedding")


def adapters_home(bundle: Bundle) -> Path:
    """Return where the adapters of a bundle lie, each in a directory that is called as it is."""
    return bundle.directory.parent / ADAPTERS_DIR / str(bundle.version)


def adapters_of(bundle: Bundle) -> list[str]:
    """Return the names of those that lie there, sorted. None, if the bundle takes none."""
    if not bundle.manifest.adapters.layers:
        return []
    try:
        there = [path for path in adapters_home(bundle).iterdir() if ADAPTER_NAME.fullmatch(path.name)]
    except OSError:
        return []
    return sorted(path.name for path in there if (path / ADAPTER_FILE).is_file())


def versions_with(bundle: Bundle, name: str) -> list[int]:
    """Return the other versions of a bundle's model that have an adapter of a name, sorted."""
    try:
        homes = [path for path in adapters_home(bundle).parent.iterdir() if path.name.isdecimal()]
    except OSError:
        return []
    found = (int(path.name) for path in homes if (path / name / ADAPTER_FILE).is_file())
    return sorted(version for version in found if version != bundle.version)


def load_adapter(directory: Path, bundle: Bundle) -> tuple[Adapter, bundle_pb2.Golden]:
    """Read and verify an adapter of a bundle. Returns it, and what it must answer before it is used.

    Raises:
        BundleError: it is refused.
    """
    try:
        content = read_small_file(directory / ADAPTER_FILE, MAX_ADAPTER_BYTES)
        manifest = _parsed(content)
        verify_limits(manifest)
        _verify(manifest, bundle)
        verify_names(directory, {manifest.weights.path, ADAPTER_FILE}, ADAPTER_FILE)
        verify_file(directory / manifest.weights.path, manifest.weights)
        pairs = _pairs(directory / manifest.weights.path, manifest, bundle.manifest.adapters)
    except OSError as error:
        raise BundleError(f"{error.filename or directory}: {error.strerror}") from error
    return Adapter(directory.name, hashlib.sha256(content).hexdigest(), pairs), manifest.golden


def _parsed(content: bytes) -> bundle_pb2.AdapterManifest:
    try:
        text = content.decode()
        require(has_few_entries(text), f"{ADAPTER_FILE} has too many entries")
        manifest = json_format.Parse(text, bundle_pb2.AdapterManifest())
    except (json_format.ParseError, ValueError, RecursionError) as error:
        raise BundleError(f"{ADAPTER_FILE} is not an AdapterManifest in JSON: {first_line(error)}") from error
    known = manifest.format_version == FORMAT_VERSION
    require(known, f"{ADAPTER_FILE} has format_version {manifest.format_version}; this server knows {FORMAT_VERSION}")
    return manifest


def _verify(manifest: bundle_pb2.AdapterManifest, bundle: Bundle) -> None:
    """Refuse what is not for this bundle, or not of the size that it says."""
    require(manifest.base_sha256 == bundle.sha256, "it is for another base: base_sha256 is not that of its bundle.json")
    known = {layer.name: layer for layer in bundle.manifest.adapters.layers}
    names = [layer.name for layer in manifest.layers]
    require(names, "layers are missing")
    require(len(set(names)) == len(names), "layers has a name twice")
    size = 0
    for layer in manifest.layers:
        require(layer.name in known, f"the base takes no adapter of {layer.name!r}")
        taken = known[layer.name]
        require(
            1 <= layer.rank <= taken.rank, f"{layer.name!r} has a rank of {layer.rank}; the base takes {taken.rank}"
        )
        size += _FLOAT_BYTES * layer.rank * (taken.inputs + taken.outputs)
    stated = manifest.weights.size_bytes
    require(stated == size, f"weights.size_bytes is {stated}; its layers take {size}")
    verify_golden(manifest.golden, bundle.manifest)


def verify_golden(golden: bundle_pb2.Golden, manifest: bundle_pb2.BundleManifest) -> None:
    """Refuse an answer that the base, whose manifest this is, would not give: of another kind, or of another size."""
    base, task, text = manifest.golden, TASKS[manifest.task], manifest.text
    same_kind = golden.WhichOneof("input") == base.WhichOneof("input")
    require(same_kind and golden.image_path == base.image_path, "golden is of another kind than the base's")
    wanted = [name for name in _ANSWERS if getattr(base, name)]
    fits = wanted == [name for name in _ANSWERS if getattr(golden, name)]
    count, of_base = (len(getattr(each, wanted[0])) for each in (golden, base))
    # The answer to another text may have other rows: one for each token, or for each mask.
    if task.labels_tokens:
        fits = fits and count % len(manifest.labels) == 0
    elif task.fills_masks:
        fits = fits and count == len(golden.scores)
    elif not task.writes_text:
        fits = fits and count == of_base
    require(fits, f"golden.{wanted[0]} is missing, or has another size than the base's")
    vocab = text.target_vocab_size if task.writes_text else text.source_vocab_size
    inside = all(id_ < vocab for id_ in golden.token_ids) and (not task.writes_text or count <= text.max_new_tokens)
    require(inside, "golden.token_ids are more than the base produces, or none of its tokens")


def _pairs(
    path: Path, manifest: bundle_pb2.AdapterManifest, spec: bundle_pb2.AdapterSpec
) -> dict[str, tuple[np.ndarray, np.ndarray]]:
    known = {layer.name: layer for layer in spec.layers}
    numbers = np.fromfile(path, "<f4").astype(np.float32, copy=False)
    require(np.isfinite(numbers).all(), f"{path.name} has a number that is not finite")
    pairs, start = {}, 0
    for layer in manifest.layers:
        taken = known[layer.name]
        parts = []
        for shape in ((taken.inputs, layer.rank), (layer.rank, taken.outputs)):
            stop = start + shape[0] * shape[1]
            parts.append(numbers[start:stop].reshape(shape))
            start = stop
        pairs[layer.name] = parts[0], parts[1]
    return pairs
