"""The header of a GGUF file: what it says of a model, and where its tensors lie.

The format is that of ggml's docs/gguf.md, versions 2 and 3. A file is believed only as far as it has bytes.
"""

import mmap
import struct
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from weft_export.checkpoints.files import check_regular
from weft_export.checkpoints.formats import GGUF_MAGIC
from weft_export.converters.gguf.block_types import BLOCK_TYPES, OTHER_TYPES, BlockType
from weft_export.converters.gguf.names import parts_of
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
_ALIGNMENT = 32


@dataclass(frozen=True)
class Place:
    """One tensor as it lies in a file.

    shape: as torch has it: the last axis is the one whose numbers lie side by side.
    first: the byte of the file where it begins.
    """

    path: Path
    shape: tuple[int, ...]
    kind: BlockType
    first: int
    num_bytes: int


@dataclass(frozen=True)
class Header:
    """What a GGUF file says, or several that are the parts of one.

    values: what the first one says, by key: numbers, strings, and lists of these.
    """

    paths: tuple[Path, ...]
    values: Mapping[str, Any]
    tensors: Mapping[str, Place]


def read_header(path: Path) -> Header:
    """Read a file, and all its parts where it is one of several: model-00001-of-00003.gguf and so on.

    Raises:
        CheckpointError: a part is missing, is no GGUF file, or does not have the bytes that it says.
    """
    paths = parts_of(path)
    values: dict[str, Any] = {}
    tensors: dict[str, Place] = {}
    for part in paths:
        said, places = _read(part)
        values = values or said
        for name, place in places.items():
            if name in tensors:
                raise CheckpointError(f"{part}: the tensor {name} is in another part too")
            tensors[name] = place
    expected = values.get("split.count", 1)
    if expected not in {0, len(paths)}:
        raise CheckpointError(
            f"{path} says that it is one of {expected!r:.20} parts; their names end with -00001-of-{len(paths):05}.gguf"
            " and so on"
        )
    return Header(tuple(paths), values, tensors)


def _read(path: Path) -> tuple[dict[str, Any], dict[str, Place]]:
    size = check_regular(path)
    if size < len(GGUF_MAGIC):
        raise CheckpointError(f"{path} is not a GGUF file: it has {size} bytes")
    try:
        with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as content:
            return _Reader(path, content, size).read()
    except (ValueError, struct.error) as error:
        raise CheckpointError(f"{path} is not a GGUF file that is read here: {error}") from error
    except OSError as error:
        raise CheckpointError(f"cannot read {path}: {error.strerror or error}") from error


class _Reader:
    """A place in a header, which moves on as it is read. ValueError and struct.error for what is wrong."""

    def __init__(self, path: Path, content: mmap.mmap, size: int) -> None:
        self._path, self._content, self._size = path, content, size
        self._end = min(size, MAX_HEADER_BYTES)
        self._at = 0

    def read(self) -> tuple[dict[str, Any], dict[str, Place]]:
        if self._bytes(4) != GGUF_MAGIC:
            raise ValueError("it does not begin with the letters GGUF")
        (version,) = self._numbers("I")
        if version not in _VERSIONS:
            big = "; its numbers have their highest byte first" if version in {each << 24 for each in _VERSIONS} else ""
            raise ValueError(f"it has the version {version}; versions 2 and 3 are read{big}")
        num_tensors, num_keys = self._numbers("QQ")
        if num_keys > MAX_KEYS or num_tensors > MAX_TENSORS:
            raise ValueError(f"it has {num_keys} keys and {num_tensors} tensors; {MAX_KEYS} and {MAX_TENSORS} are read")
        values = {}
        for _ in range(num_keys):
            key = self._name()
            if key in values:
                raise ValueError(f"it has the key {key} twice")
            (kind,) = self._numbers("I")
            values[key] = self._value(kind)
        alignment = values.get("general.alignment", _ALIGNMENT)
        if type(alignment) is not int or not 8 <= alignment <= 2**16 or alignment & alignment - 1:
            raise ValueError(f"general.alignment is {alignment!r:.40}, not a power of two from 8 to {2**16}")
        return values, self._tensors(num_tensors, alignment)

    def _tensors(self, num_tensors: int, alignment: int) -> dict[str, Place]:
        said = [(self._name(), self._shape(), *self._numbers("IQ")) for _ in range(num_tensors)]
        data = self._at + -self._at % alignment
        places: dict[str, Place] = {}
        for name, shape, number, offset in said:
            if name in places:
                raise ValueError(f"it has the tensor {name} twice")
            if number not in BLOCK_TYPES:
                called = OTHER_TYPES.get(number, f"number {number}")
                known = ", ".join(kind.name for kind in BLOCK_TYPES.values())
                raise ValueError(f"the tensor {name} is of the type {called}; these are read: {known}")
            kind, count = BLOCK_TYPES[number], 1
            for length in shape:
                count *= length
            if shape[-1] % kind.numbers:
                raise ValueError(f"the tensor {name} has rows of {shape[-1]}, which are no blocks of {kind.numbers}")
            num_bytes = count // kind.numbers * kind.num_bytes
            if offset % alignment or data + offset + num_bytes > self._size:
                raise ValueError(f"the tensor {name} would end behind the file, or does not begin where one may")
            places[name] = Place(self._path, shape, kind, data + offset, num_bytes)
        if sum(place.num_bytes for place in places.values()) > self._size:
            raise ValueError("its tensors would take more bytes than it has")
        return places

    def _shape(self) -> tuple[int, ...]:
        (axes,) = self._numbers("I")
        if not 1 <= axes <= 4:
            raise ValueError(f"a tensor has {axes} axes")
        lengths = self._numbers("Q" * axes)
        if not all(1 <= length < 2**40 for length in lengths):
            raise ValueError(f"a tensor has the lengths {lengths}")
        return tuple(reversed(lengths))

    def _value(self, kind: int) -> Any:
        if kind == _STRING:
            return self._string()
        if kind != _LIST:
            return self._numbers(self._known(kind))[0]
        inner, count = self._numbers("IQ")
        if count > MAX_ITEMS:
            raise ValueError(f"a list has {count} entries; {MAX_ITEMS} are read")
        if inner == _STRING:
            return [self._string() for _ in range(count)]
        return list(self._numbers(f"{count}{self._known(inner)}"))

    def _known(self, kind: int) -> str:
        if kind not in _NUMBERS:
            raise ValueError(f"a value is of the type {kind}, or a list of lists")
        return _NUMBERS[kind]

    def _name(self) -> str:
        name = self._string()
        if not 0 < len(name) <= _MAX_NAME:
            raise ValueError(f"a name has {len(name)} characters")
        return name

    def _string(self) -> str:
        (length,) = self._numbers("Q")
        return self._bytes(length).decode()

    def _numbers(self, kinds: str) -> tuple[Any, ...]:
        return struct.unpack(f"<{kinds}", self._bytes(struct.calcsize(f"<{kinds}")))

    def _bytes(self, length: int) -> bytes:
        if self._at + length > self._end:
            limit = f"; its header may have {MAX_HEADER_BYTES} bytes" if self._end < self._size else ""
            raise ValueError(f"it is cut short, or a length in it is wrong{limit}")
        self._at += length
        return self._content[self._at - length : self._at]
