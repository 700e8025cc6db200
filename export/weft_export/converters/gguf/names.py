"""The names of GGUF files, of which several may be the parts of one. Nothing of them is read."""

import re
from pathlib import Path

from weft_export.errors import CheckpointError

MAX_PARTS = 2**10
_PART = re.compile(r"(.+)-(\d{5})-of-(\d{5})\.gguf")


def title_of(path: Path) -> str:
    """Return what a file is called, without its number among several."""
    found = _PART.fullmatch(path.name)
    return path.stem if found is None else found[1]


def parts_of(path: Path) -> list[Path]:
    """Return a file, or all its parts where it is one of several: model-00001-of-00003.gguf and so on.

    Raises:
        CheckpointError: one of them is missing.
    """
    found = _PART.fullmatch(path.name)
    if found is None:
        return [path]
    count = int(found[3])
    if not 1 <= count <= MAX_PARTS:
        raise CheckpointError(f"{path} is named as one of {count} parts; 1 to {MAX_PARTS} are read")
    paths = [path.with_name(f"{found[1]}-{number:05}-of-{count:05}.gguf") for number in range(1, count + 1)]
    for part in paths:
        if not part.exists():
            raise CheckpointError(f"{part} is missing: {path.name} is one of {count} parts")
    return paths
