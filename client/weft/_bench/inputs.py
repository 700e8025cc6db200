"""What requests ask about: lines of a text file, JSON lines, or pictures of a folder."""

import json
from pathlib import Path

from weft._types import Text
from weft.exceptions import InvalidRequest

PICTURES = (".png", ".jpg", ".jpeg", ".webp")


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


def read_pictures(paths: tuple[Path, ...]) -> list[bytes]:
    """Read picture files, those of a folder in the order of their names.

    Raises:
        InvalidRequest: A file can't be read, or there is none.
    """
    files: list[Path] = []
    for path in paths:
        if path.is_dir():
            inside = sorted(each for each in path.iterdir() if each.suffix.lower() in PICTURES)
            if not inside:
                raise InvalidRequest(f"--input: {path} holds no picture ({', '.join(PICTURES)})")
            files += inside
        elif path.exists() and not path.is_file():
            raise InvalidRequest(f"--input: {path} is not a regular file")
        else:
            files.append(path)
    try:
        return [file.read_bytes() for file in files]
    except OSError as error:
        raise InvalidRequest(f"--input: cannot read {error.filename}: {error.strerror}") from None


def are_pictures(paths: tuple[Path, ...]) -> bool:
    """Tell by their names whether these are pictures or texts; they can't be both."""
    kinds = {path.is_dir() or path.suffix.lower() in PICTURES for path in paths}
    if len(kinds) > 1:
        raise InvalidRequest("--input: give either texts or pictures")
    return kinds.pop()


def _why(error: OSError | UnicodeDecodeError) -> str:
    return f"not UTF-8 at byte {error.start}" if isinstance(error, UnicodeDecodeError) else str(error.strerror)
