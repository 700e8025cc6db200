"""What makes a bundle, beside the checkpoint: the sources of the exporter, and the packages that it runs."""

import importlib.metadata
import importlib.util
import json
from collections.abc import Iterator
from pathlib import Path

import weft_export
import weft_proto
from weft_export.checkpoints.files import read_file
from weft_export.errors import CheckpointError
from weft_export.families.entries import family_entries
from weft_proto.bundle_rules import CONFIG_FILE

# onnxruntime-gpu stands in the place of onnxruntime.
_RUN = ("weft-serving", "torch", "onnx", "onnx-ir", "onnxscript", "onnxruntime", "onnxruntime-gpu")


def versions() -> list[str]:
    """Return the versions of the packages that decide what a bundle has in it: "" for one that is not installed."""
    return [_version(name) for name in _RUN]


def sources(checkpoint: Path) -> Iterator[tuple[str, Path]]:
    """Yield (name, path) of the exporter's sources, and of a package whose family a checkpoint names."""
    for module in (weft_export, weft_proto):
        yield from _files(module.__name__, Path(next(iter(module.__path__))))
    family = _family(checkpoint)
    for entry in family_entries():
        if entry.name == family:
            yield from _package(entry.module.partition(".")[0])


def _version(name: str) -> str:
    try:
        return importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return ""


def _family(checkpoint: Path) -> object:
    """Return what config.json names, if it names anything. What is wrong with it, the export says."""
    try:
        config = json.loads(read_file(checkpoint / CONFIG_FILE))
    except (CheckpointError, ValueError, RecursionError):
        return None
    return config.get("family") if isinstance(config, dict) else None


def _package(name: str) -> Iterator[tuple[str, Path]]:
    """Yield a package's sources, or the one file of a module. It is found, and not imported."""
    found = importlib.util.find_spec(name)
    if found is None:
        return
    folders = found.submodule_search_locations
    for folder in folders or ():
        yield from _files(name, Path(folder))
    if folders is None and found.origin is not None:
        yield name, Path(found.origin)


def _files(name: str, folder: Path) -> Iterator[tuple[str, Path]]:
    for path in sorted([*folder.rglob("*.py"), *folder.rglob("*.proto")]):
        yield f"{name}/{path.relative_to(folder).as_posix()}", path
