"""What requests ask about: lines of a text file, JSON lines, pictures, or recordings."""

import json
from enum import StrEnum
from pathlib import Path

from weft._types import Text
from weft.exceptions import InvalidRequest


class Kind(StrEnum):
    """What inputs are."""

    TEXTS = "texts"
    PICTURES = "pictures"
    RECORDINGS = "recordings"


# How the names of files end that are not texts.
_ENDINGS = {Kind.PICTURES: (".png", ".jpg", ".jpeg", ".webp"), Kind.RECORDINGS: (".wav", ".flac")}


def read_texts(paths: tuple[Path, ...]) -> list[Text]:
    """Read one text from each line.

    A line of a `.jsonl` file is a string, a list of token ids, or an object with one of them as "text" or "token_ids".

    Raises:
        InvalidRequest: A file can't be read, or a line holds no text; it is named.
    """
    found: list[Text] = []
    for path in paths:
        if path.exists() and not path.is_file():  # a pipe or a device may never end
            raise InvalidRequest(f"--input: {path} is not a regular file")
        try:
            lines = path.read_text("utf-8-sig").removesuffix("\n").split("\n")
        except (OSError, UnicodeDecodeError) as error:
            raise InvalidRequest(f"--input: cannot read {path}: {_why(error)}") from None
        read = _json_line if path.suffix.lower() == ".jsonl" else str
        for number, line in enumerate(lines, 1):
            if not line.strip():
                raise InvalidRequest(f"--input: {path}, line {number}: is empty")
            try:
                found.append(read(line))
            except (ValueError, RecursionError) as error:
                raise InvalidRequest(f"--input: {path}, line {number}: {error}") from None
    return found


def _json_line(line: str) -> Text:
    value = json.loads(line)
    if isinstance(value, dict):
        value = value.get("text", value.get("token_ids"))
    if isinstance(value, str) and value.strip():
        return value
    if isinstance(value, list) and value and all(type(each) is int and each >= 0 for each in value):
        return value
    raise ValueError("must hold a text that is not empty, or token ids")


def read_files(paths: tuple[Path, ...]) -> list[bytes]:
    """Read pictures or recordings, those of a folder in the order of their names.

    Raises:
        InvalidRequest: A file can't be read.
    """
    files: list[Path] = []
    for path in paths:
        if path.is_dir():
            files += sorted(each for each in path.iterdir() if _kind(each) is not Kind.TEXTS)
        elif path.exists() and not path.is_file():
            raise InvalidRequest(f"--input: {path} is not a regular file")
        else:
            files.append(path)
    try:
        return [file.read_bytes() for file in files]
    except OSError as error:
        raise InvalidRequest(f"--input: cannot read {error.filename}: {error.strerror}") from None


def kind_of(paths: tuple[Path, ...]) -> Kind:
    """Tell by their names what these are. A folder has pictures or recordings; its other files do not count.

    Raises:
        InvalidRequest: They are of several kinds, or a folder has none of them.
    """
    kinds = set()
    for path in paths:
        if not path.is_dir():
            kinds.add(_kind(path))
        elif inside := {_kind(each) for each in path.iterdir()} - {Kind.TEXTS}:
            kinds |= inside
        else:
            endings = ", ".join(ending for each in _ENDINGS.values() for ending in each)
            raise InvalidRequest(f"--input: {path} holds no picture and no recording ({endings})")
    if len(kinds) > 1:
        raise InvalidRequest(f"--input: give only one of {', '.join(sorted(kinds))}")
    return kinds.pop()


def _kind(path: Path) -> Kind:
    suffix = path.suffix.lower()
    return next((kind for kind, endings in _ENDINGS.items() if suffix in endings), Kind.TEXTS)


def _why(error: OSError | UnicodeDecodeError) -> str:
    return f"not UTF-8 at byte {error.start}" if isinstance(error, UnicodeDecodeError) else str(error.strerror)
