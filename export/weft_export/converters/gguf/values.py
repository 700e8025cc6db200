"""The keys and values at the beginning of a GGUF file, without its tensors: quick, and without torch."""

import mmap
import struct
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from weft_export.checkpoints.files import check_regular
from weft_export.checkpoints.formats import GGUF_MAGIC
from weft_export.converters.gguf.names import class_of, parts_of
from weft_export.errors import CheckpointError

MAX_HEADER_BYTES = 2**27
"""Of keys, values and names. The largest vocabularies in use take a tenth of it."""
MAX_KEYS = 2**12
MAX_ITEMS = 2**21
"""Of one list: tokens, or merges of them."""
MAX_TENSORS = 2**16
_MAX_NAME = 256

_VERSIONS = (2, 3)
_STRING, _LIST = 8, 9
# The numbers that values have, as struct writes them.
_NUMBERS = {0: "B", 1: "b", 2: "H", 3: "h", 4: "I", 5: "i", 6: "f", 7: "?", 10: "Q", 11: "q", 12: "d"}


def config_in(path: Path) -> dict[str, Any]:
    """Return what config.json of the same model says of its class, and how many places a text has.

    A file says this before its tokens, which are not read. Of several parts the first one does. Nothing is returned
    where it does not.

    Raises:
        CheckpointError: the file is none of GGUF, or of another architecture than those that are read.
    """
    said: dict[str, Any] = {}
    with reading(parts_of(path)[0]) as reader:
        for key, value in reader.values():
            if key.startswith("tokenizer."):
                break
            said[key] = value
    if "general.architecture" not in said:
        return {}
    model_type, class_name = class_of(said, path)
    config: dict[str, Any] = {"model_type": model_type, "architectures": [class_name]}
    places = said.get(f"{said['general.architecture']}.context_length")
    return config if places is None else {**config, "n_positions": places}


@contextmanager
def reading(path: Path) -> Iterator["Reader"]:
    """Yield a reader of a file. Raises CheckpointError for what it cannot read in this block."""
    size = check_regular(path)
    if size < len(GGUF_MAGIC):
        raise CheckpointError(f"{path} is not a GGUF file: it has {size} bytes")
    try:
        with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as content:
            yield Reader(content, size)
    except (ValueError, struct.error) as error:
        raise CheckpointError(f"{path} is not a GGUF file that is read here: {error}") from error
    except OSError as error:
        raise CheckpointError(f"cannot read {path}: {error.strerror or error}") from error


class Reader:
    """A place in a header, which moves on as it is read. ValueError and struct.error for what is wrong."""

    def __init__(self, content: mmap.mmap, size: int) -> None:
        self.size, self.num_tensors, self.at = size, 0, 0
        self._content = content
        self._end = min(size, MAX_HEADER_BYTES)

    def values(self) -> Iterator[tuple[str, Any]]:
        """Yield each key with its value, from the beginning. Behind them stand so many tensors: `num_tensors`."""
        if self._bytes(4) != GGUF_MAGIC:
            raise ValueError("it does not begin with the letters GGUF")
        (version,) = self.numbers("I")
        if version not in _VERSIONS:
            big = "; its numbers have their highest byte first" if version in {each << 24 for each in _VERSIONS} else ""
            raise ValueError(f"it has the version {version}; versions 2 and 3 are read{big}")
        self.num_tensors, num_keys = self.numbers("QQ")
        if num_keys > MAX_KEYS or self.num_tensors > MAX_TENSORS:
            raise ValueError(
                f"it has {num_keys} keys and {self.num_tensors} tensors; {MAX_KEYS} and {MAX_TENSORS} are read"
            )
        known = set()
        for _ in range(num_keys):
            key = self.name()
            if key in known:
                raise ValueError(f"it has the key {key} twice")
            known.add(key)
            (kind,) = self.numbers("I")
            yield key, self._value(kind)

    def _value(self, kind: int) -> Any:
        if kind == _STRING:
            return self._string()
        if kind != _LIST:
            return self.numbers(self._known(kind))[0]
        inner, count = self.numbers("IQ")
        if count > MAX_ITEMS:
            raise ValueError(f"a list has {count} entries; {MAX_ITEMS} are read")
        if inner == _STRING:
            return [self._string() for _ in range(count)]
        return list(self.numbers(f"{count}{self._known(inner)}"))

    def _known(self, kind: int) -> str:
        if kind not in _NUMBERS:
            raise ValueError(f"a value is of the type {kind}, or a list of lists")
        return _NUMBERS[kind]

    def name(self) -> str:
        """Read the name of a key or of a tensor."""
        name = self._string()
        if not 0 < len(name) <= _MAX_NAME:
            raise ValueError(f"a name has {len(name)} characters")
        return name

    def _string(self) -> str:
        (length,) = self.numbers("Q")
        return self._bytes(length).decode()

    def numbers(self, kinds: str) -> tuple[Any, ...]:
        """Read numbers, of the kinds that struct names."""
        return struct.unpack(f"<{kinds}", self._bytes(struct.calcsize(f"<{kinds}")))

    def _bytes(self, length: int) -> bytes:
        if self.at + length > self._end:
            limit = f"; its header may have {MAX_HEADER_BYTES} bytes" if self._end < self.size else ""
            raise ValueError(f"it is cut short, or a length in it is wrong{limit}")
        self.at += length
        return self._content[self.at - length : self.at]
