"""From the messages of the wire to the dataclasses of the SDK."""

from collections.abc import Callable, Iterable
from dataclasses import is_dataclass
from enum import StrEnum
from functools import cache, partial
from operator import attrgetter
from types import UnionType
from typing import Any, TypeVar, cast, get_args, get_origin, get_type_hints

from google.protobuf.duration_pb2 import Duration

from weft._completions import Completion
from weft._decoding import Decoding
from weft._decoding_message import read_decoding
from weft._model import Model, Prompt, QuestionForm, VectorKind
from weft._types import Alignment, PictureColumns, Timings, TopToken
from weft_proto.v1 import common_pb2

Kind = TypeVar("Kind")


def read(kind: type[Kind], *messages: Any, **more: Any) -> Kind:
    """Make a dataclass of messages, by the names and types of its fields.

    Each is read from the first message that has one of that name, but for those in `more`.
    """
    for name, place, read in _fields(cast("Any", kind), *map(type, messages)):
        if name not in more:
            more[name] = read(messages[place])
    return kind(**more)


@cache
def _fields(kind: Any, *messages: Any) -> tuple[tuple[str, int, Callable[[Any], Any]], ...]:
    """Return of each field its name, which message has it, and what reads it."""
    hints, found = get_type_hints(kind), []
    for name in kind.__dataclass_fields__:
        places = [place for place, each in enumerate(messages) if name in _names(each)]
        found.append((name, (places or [0])[0], _field(name, hints[name])))
    return tuple(found)


def _names(message: Any) -> Any:
    return message.DESCRIPTOR.fields_by_name


def _field(name: str, hint: Any) -> Callable[[Any], Any]:
    """Return what reads a field of a message as an annotation says: `X`, `tuple[X, ...]`, or `X | None`."""
    if isinstance(hint, type) and issubclass(hint, StrEnum):
        return lambda message: _word(hint, _names(message)[name].enum_type, getattr(message, name))
    origin = get_origin(hint)
    make = _maker(get_args(hint)[0] if origin in (tuple, UnionType) else hint)
    if origin is tuple:
        return lambda message: tuple(map(make, getattr(message, name)))
    if origin is UnionType:
        return lambda message: make(getattr(message, name)) if message.HasField(name) else None
    return attrgetter(name) if make is _same else lambda message: make(getattr(message, name))


def _maker(kind: Any) -> Callable[[Any], Any]:
    """Return what makes a value of the wire's."""
    if kind in _MADE:
        return _MADE[kind]
    return partial(read, cast("Any", kind)) if is_dataclass(kind) else _same


def _same(value: Any) -> Any:
    return value


def _word(kind: type[StrEnum], enum: Any, number: int) -> StrEnum:
    """Give the enum's word for `number`: `unspecified` for one that a newer server invented."""
    prefix = enum.values_by_number[0].name.removesuffix("UNSPECIFIED")
    known = enum.values_by_number.get(number)
    try:
        return kind(known.name.removeprefix(prefix).lower() if known else "unspecified")
    except ValueError:
        return kind("unspecified")


def _alignment(message: common_pb2.Alignment) -> Alignment:
    width = len(message.source_tokens) or message.grid_rows * message.grid_columns or message.num_columns
    num_rows = len(message.target_tokens)
    rows = _rows(message.weights, num_rows, width)
    asked = _rows(message.question_weights, num_rows, len(message.question_tokens)) if message.question_tokens else ()
    region = _region(message.image_region if message.HasField("image_region") else None)
    return read(Alignment, message, weights=rows, region=region, question_weights=asked)


def _picture_columns(message: common_pb2.PictureColumns) -> PictureColumns:
    return read(PictureColumns, message, region=_region(message.region if message.HasField("region") else None))


def _region(region: common_pb2.Region | None) -> tuple[float, float, float, float]:
    """Return the edges of a part of a picture, by default those of the whole."""
    return (0.0, 0.0, 1.0, 1.0) if region is None else (region.left, region.top, region.right, region.bottom)


def _rows(values: Iterable[float], num_rows: int, width: int) -> tuple[tuple[float, ...], ...]:
    flat = tuple(values)
    return tuple(flat[row * width : (row + 1) * width] for row in range(num_rows))


def _seconds(duration: Duration) -> float:
    return duration.seconds + duration.nanos / 1e9


def _timings(message: common_pb2.Timings) -> Timings:
    return Timings(_seconds(message.queue), _seconds(message.prefill), _seconds(message.decode))


def _top_tokens(message: common_pb2.TopTokens) -> tuple[TopToken, ...]:
    return tuple(map(TopToken, message.token_ids, message.tokens, message.log_probs))


def _vector_kind(number: int) -> VectorKind:
    known: dict[int, VectorKind] = {
        common_pb2.VectorKind.Value(f"VECTOR_KIND_{each.name}"): each for each in VectorKind
    }
    return known.get(number, VectorKind.UNSPECIFIED)


# What is not of the same shape on both sides.
_MADE: dict[Any, Callable[[Any], Any]] = {
    Alignment: _alignment,
    Decoding: read_decoding,
    PictureColumns: _picture_columns,
    Prompt: lambda message: Prompt(message.name, message.text, message.max_tokens),
    QuestionForm: lambda message: QuestionForm(message.token, message.text),
    Timings: _timings,
    tuple[TopToken, ...]: _top_tokens,
    VectorKind: _vector_kind,
}

Answer = TypeVar("Answer", bound=Completion)


def completion(kind: type[Answer]) -> Callable[[Any], Answer]:
    """Return what reads an answer that is text."""
    return lambda message: read(kind, message, message.completion)


def reader(kind: type[Kind]) -> Callable[[Any], Kind]:
    """Return what reads any other answer."""
    return partial(read, kind)


model = reader(Model)
