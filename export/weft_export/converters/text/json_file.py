"""JSON of a directory: read once, of a bounded size, with an error that names the file."""

import json
import re
from pathlib import Path
from typing import Any

from weft_export.checkpoints.files import read_file
from weft_export.errors import CheckpointError

# Half of a surrogate pair, as JSON writes one; the other half may stand beside it.
_HALF = re.compile(rb"\\u[dD][89a-fA-F]")


def read_object(path: Path) -> dict[str, Any]:
    """Read a file that holds one JSON object. For any other file, CheckpointError says what is wrong."""
    value = _read(path)
    if not isinstance(value, dict):
        raise CheckpointError(f"{path} is not a JSON object")
    return value


def read_list(path: Path) -> list[Any]:
    """Read a file that holds one JSON list, likewise."""
    value = _read(path)
    if not isinstance(value, list):
        raise CheckpointError(f"{path} holds no list")
    return value


def _read(path: Path) -> Any:
    content = read_file(path)
    try:
        value = json.loads(content)
    except ValueError as error:
        raise CheckpointError(f"{path} is not JSON: {error}") from error
    except RecursionError as error:
        raise CheckpointError(f"{path} is nested too deeply") from error
    if _HALF.search(content) and not _is_text(value):
        raise CheckpointError(f"{path} has half of a surrogate pair, which is no character")
    return value


def read_object_if_there(path: Path) -> dict[str, Any]:
    """Read as read_object does. A file that is not there says nothing: {}."""
    return read_object(path) if path.exists() else {}


def _is_text(value: object) -> bool:
    try:
        json.dumps(value, ensure_ascii=False).encode()
    except UnicodeEncodeError:
        return False
    return True


def read_ids(path: Path, most: int) -> dict[str, int]:
    """Read a vocabulary: an object of ids below `most`, by their tokens. Otherwise CheckpointError."""
    return check_ids(path, read_object(path), most)


def check_ids(path: Path | str, vocab: object, most: int) -> dict[str, int]:
    """Return a vocabulary that a file holds. CheckpointError unless it is an object of ids below `most`."""
    if not isinstance(vocab, dict):
        raise CheckpointError(f"{path}: the vocabulary is not an object of ids")
    for token, id_ in vocab.items():
        if type(id_) is not int or not 0 <= id_ < most:
            raise CheckpointError(f"{path}: the token {token!r:.60} has the id {id_!r:.20}; ids are in [0, {most})")
    return vocab
