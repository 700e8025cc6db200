"""The header of a GGUF file: what it says of a model, and where its tensors lie.

The format is that of ggml's docs/gguf.md, versions 2 and 3. A file is believed only as far as it has bytes.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from weft_export.converters.gguf.block_types import BLOCK_TYPES, OTHER_TYPES, BlockType
from weft_export.converters.gguf.names import parts_of
from weft_export.converters.gguf.values import Reader, reading
from weft_export.errors import CheckpointError

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
        with reading(part) as reader:
            said = dict(reader.values())
            places = _tensors(part, reader, said.get("general.alignment", _ALIGNMENT))
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


def _tensors(path: Path, reader: Reader, alignment: Any) -> dict[str, Place]:
    if type(alignment) is not int or not 8 <= alignment <= 2**16 or alignment & alignment - 1:
        raise ValueError(f"general.alignment is {alignment!r:.40}, not a power of two from 8 to {2**16}")
    said = [(reader.name(), _shape(reader), *reader.numbers("IQ")) for _ in range(reader.num_tensors)]
    data = reader.at + -reader.at % alignment
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
        if offset % alignment or data + offset + num_bytes > reader.size:
            raise ValueError(f"the tensor {name} would end behind the file, or does not begin where one may")
        places[name] = Place(path, shape, kind, data + offset, num_bytes)
    if sum(place.num_bytes for place in places.values()) > reader.size:
        raise ValueError("its tensors would take more bytes than it has")
    return places


def _shape(reader: Reader) -> tuple[int, ...]:
    (axes,) = reader.numbers("I")
    if not 1 <= axes <= 4:
        raise ValueError(f"a tensor has {axes} axes")
    lengths = reader.numbers("Q" * axes)
    if not all(1 <= length < 2**40 for length in lengths):
        raise ValueError(f"a tensor has the lengths {lengths}")
    return tuple(reversed(lengths))
