"""The place of a bundle that `weft up` keeps: known by what it would be made of."""

import fcntl
import hashlib
import os
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from weft_export.checkpoints.exporter import sources, versions
from weft_export.checkpoints.files import HELD_OUT_FILE, check_regular
from weft_export.checkpoints.formats import WORLD_FILE, is_gguf, is_pth
from weft_export.converters.gguf.names import parts_of
from weft_proto.bundle_rules import MODEL_NAME

_DIGITS = 16


def default_home() -> Path:
    """Return where bundles are kept unless somebody says so: ~/.cache/weft."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "weft"


def model_name(given: str) -> str:
    """Return a name that a model may have, which is near to that of a folder."""
    name = re.sub(r"[^a-z0-9._-]+", "-", given.lower()).strip("._-")[:128]
    return name if MODEL_NAME.fullmatch(name) else "model"


def key_of(checkpoint: Path, name: str, options: Mapping[str, object]) -> str:
    """Return a digest of a checkpoint's files, its model's name, the exporter, and how it is asked to export.

    The name counts because a repository serves all that is in it: one key under two names would be two models.

    Of files in folders of the checkpoint, those of sentence-transformers' modules count: 1_Pooling and the like. No
    reader of checkpoints looks into others.
    """
    digest = hashlib.sha256()
    digest.update(repr((name, versions(), sorted(options.items()))).encode())
    for source, path in sources(checkpoint):
        _add(digest, source, path)
    folder, paths = checkpoint, [*checkpoint.glob("*"), *checkpoint.glob("[0-9]*/*")]
    if is_gguf(checkpoint):
        folder = checkpoint.parent
        paths = [*parts_of(checkpoint), *folder.glob(HELD_OUT_FILE)]
    if is_pth(checkpoint):
        folder = checkpoint.parent
        paths = [checkpoint, *folder.glob(WORLD_FILE), *folder.glob(HELD_OUT_FILE)]
    for path in sorted(paths):
        if not path.is_dir() and not path.name.startswith(".") and path.suffix != ".md":
            check_regular(path)
            _add(digest, str(path.relative_to(folder)), path)
    return digest.hexdigest()[:_DIGITS]


@contextmanager
def alone(folder: Path) -> Iterator[None]:
    """Hold a folder's lock in this block, so that of two that want one bundle the second waits for it."""
    folder.mkdir(parents=True, exist_ok=True)
    with (folder.parent / f"{folder.name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def _add(digest: "hashlib._Hash", name: str, path: Path) -> None:
    with path.open("rb") as file:
        digest.update(f"{name}\0{hashlib.file_digest(file, 'sha256').hexdigest()}\n".encode())
