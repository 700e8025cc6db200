"""A SentencePiece model file, read without the library: its pieces, and how it normalises.

The file is a protobuf ModelProto. Only a few of its fields are needed, and the library's own generated code asks for
a newer protobuf than ours. The fields are those of sentencepiece_model.proto (Kudo and Richardson, 2018).
"""

import struct
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from weft_export.checkpoints.files import read_file
from weft_export.converters.text.charsmap import check_charsmap
from weft_export.errors import CheckpointError

MAX_PIECES = 2**20
"""The most pieces of a model. The largest vocabularies in use have a quarter of it."""

UNIGRAM, BPE = 1, 2
NORMAL, UNKNOWN, CONTROL, USER_DEFINED, UNUSED, BYTE = range(1, 7)

_PIECES, _TRAINER, _NORMALIZER = 1, 2, 3
_VARINT, _FIXED64, _BYTES, _FIXED32 = 0, 1, 2, 5


class Piece(NamedTuple):
    """One piece. Its place in the file is its id."""

    text: str
    score: float
    kind: int


@dataclass(frozen=True)
class SpmModel:
    """What a model file says.

    Attributes:
        pieces: in the order of their ids.
        algorithm: UNIGRAM or BPE.
        unk_id: the piece for what no other piece matches.
        byte_fallback: whether such a text becomes a piece for each byte.
        charsmap: the rules of normalisation, compiled; empty for none.
        add_dummy_prefix: whether a text gets a space before its first word.
        remove_extra_whitespaces: whether spaces at both ends are removed, and several in a row become one.
    """

    pieces: tuple[Piece, ...]
    algorithm: int
    unk_id: int
    byte_fallback: bool
    charsmap: bytes
    add_dummy_prefix: bool
    remove_extra_whitespaces: bool


def read_spm_model(path: Path) -> SpmModel:
    """Read a model file. Where it is none, CheckpointError says what is wrong."""
    content = memoryview(read_file(path))
    try:
        model = _parse(content)
    except (ValueError, IndexError, struct.error) as error:
        raise CheckpointError(f"{path} is not a SentencePiece model: {error}") from error
    if model.algorithm not in (UNIGRAM, BPE):
        raise CheckpointError(f"{path}: models of words or characters are not supported; unigram and BPE are")
    if not 0 <= model.unk_id < len(model.pieces):
        raise CheckpointError(f"{path}: the unknown piece has the id {model.unk_id} of {len(model.pieces)}")
    if model.charsmap:
        check_charsmap(path, model.charsmap)
    return model


def _parse(content: memoryview) -> SpmModel:
    pieces: list[Piece] = []
    trainer: dict[int, int | memoryview] = {}
    normalizer: dict[int, int | memoryview] = {}
    for field, value in _fields(content):
        if field == _PIECES:
            if len(pieces) == MAX_PIECES:
                raise ValueError(f"it has more than {MAX_PIECES} pieces")
            pieces.append(_piece(_message(value)))
        elif field == _TRAINER:
            trainer.update(_fields(_message(value)))
        elif field == _NORMALIZER:
            normalizer.update(_fields(_message(value)))
    if not pieces:
        raise ValueError("it has no pieces")
    return SpmModel(
        pieces=tuple(pieces),
        algorithm=_number(trainer.get(3, UNIGRAM)),
        unk_id=_number(trainer.get(40, 0)),
        byte_fallback=bool(trainer.get(35, 0)),
        charsmap=bytes(_message(normalizer.get(2, memoryview(b"")))),
        add_dummy_prefix=bool(normalizer.get(3, 1)),
        remove_extra_whitespaces=bool(normalizer.get(4, 1)),
    )


def _piece(content: memoryview) -> Piece:
    text, score, kind = "", 0.0, NORMAL
    for field, value in _fields(content):
        if field == 1:
            text = bytes(_message(value)).decode()
        elif field == 2:
            score = struct.unpack("<f", _message(value))[0]
        elif field == 3:
            kind = _number(value)
    if not -1e30 < score < 1e30:  # said this way round, NaN fails
        raise ValueError(f"the piece {text!r:.60} has the score {score}")
    return Piece(text, score, kind)


def _fields(content: memoryview) -> Iterator[tuple[int, int | memoryview]]:
    """The fields of a message by their numbers: a number of a varint, and the bytes of all others."""
    at = 0
    while at < len(content):
        tag, at = _varint(content, at)
        wire = tag & 7
        if wire == _VARINT:
            number, at = _varint(content, at)
            yield tag >> 3, number
            continue
        length = {_FIXED64: 8, _FIXED32: 4}.get(wire)
        if wire == _BYTES:
            length, at = _varint(content, at)
        if length is None or at + length > len(content):
            raise ValueError("it is cut short, or no protobuf")
        yield tag >> 3, content[at : at + length]
        at += length


def _varint(content: memoryview, at: int) -> tuple[int, int]:
    number = shift = 0
    while True:
        byte = content[at]
        at += 1
        number |= (byte & 0x7F) << shift
        shift += 7
        if byte < 0x80:
            return number, at
        if shift > 63:
            raise ValueError("a number has more than ten bytes")


def _message(value: int | memoryview) -> memoryview:
    if isinstance(value, int):
        raise ValueError("a field has a number where bytes belong")  # noqa: TRY004 - it is the file that is wrong
    return value


def _number(value: int | memoryview) -> int:
    if not isinstance(value, int):
        raise ValueError("a field has bytes where a number belongs")  # noqa: TRY004 - it is the file that is wrong
    return value
