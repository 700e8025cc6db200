"""Messages as protojson, by plans that are made of their descriptors once. json_format asks the descriptors each time.

What is not plain is left to json_format, errors above all: a number as text, `null`, a field twice. So nothing is taken
here that it refuses, and nothing is written otherwise than it writes it: the tests ask both.
"""

from __future__ import annotations

import base64
import binascii
import json
import math
import struct
from functools import cache, partial
from typing import TYPE_CHECKING, Any

import msgspec
from google.protobuf.descriptor import FieldDescriptor

if TYPE_CHECKING:
    from collections.abc import Callable

    from google.protobuf.descriptor import Descriptor, EnumDescriptor

_FLOAT = struct.Struct("f")
_MAX_FLOAT = float.fromhex("0x1.fffffep+127")
# Beyond it, a float does not hold each whole number.
_MAX_EXACT = 2**53
_INTEGERS = frozenset(
    {FieldDescriptor.CPPTYPE_INT32, FieldDescriptor.CPPTYPE_UINT32}
    | {FieldDescriptor.CPPTYPE_INT64, FieldDescriptor.CPPTYPE_UINT64}
)
_LONG = frozenset({FieldDescriptor.CPPTYPE_INT64, FieldDescriptor.CPPTYPE_UINT64})
_write = msgspec.json.Encoder().encode


class NotPlain(Exception):
    """What json_format is to judge."""


def parse(kind: Any, data: bytes) -> Any:
    """Return a message of a kind. Raises NotPlain, and for what is no JSON as `json.loads` does."""
    value = _read(data.decode())
    try:
        return kind(**_reader(kind.DESCRIPTOR)(value))
    except (ValueError, TypeError, OverflowError):  # such as a number that its field cannot hold
        raise NotPlain from None


def to_json(message: Any) -> bytes:
    """Return a message as json_format writes it, without spaces."""
    return _write(_writer(message.DESCRIPTOR)(message))


# Reading: a function for each kind of field gives what the message's constructor takes.


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    value = dict(pairs)
    if len(value) < len(pairs):
        raise NotPlain
    return value


_read = json.JSONDecoder(object_pairs_hook=_object).decode


@cache
def _reader(descriptor: Descriptor) -> Callable[[Any], dict[str, Any]]:
    fields = {}
    for field in descriptor.fields:
        read = _field_reader(field)
        oneof = field.containing_oneof.name if field.containing_oneof else field.name
        row = field.name, oneof, partial(_list, read) if field.is_repeated else read
        fields[field.name] = fields[field.json_name] = row
    return partial(_message, fields)


def _message(fields: dict[str, Any], value: Any) -> dict[str, Any]:
    if type(value) is not dict:
        raise NotPlain
    arguments, known = {}, set()
    for key, inner in value.items():
        row = fields.get(key)
        if row is None or row[1] in known:
            raise NotPlain
        name, oneof, read = row
        known.add(oneof)
        arguments[name] = read(inner)
    return arguments


def _list(read: Callable[[Any], Any], values: Any) -> list[Any]:
    if type(values) is not list:
        raise NotPlain
    return [read(value) for value in values]


def _field_reader(field: FieldDescriptor) -> Callable[[Any], Any]:
    if field.message_type:
        # Those of google.protobuf have forms of their own, and so has a map.
        is_plain = (
            field.message_type.file.package != "google.protobuf" and not field.message_type.GetOptions().map_entry
        )
        return _reader(field.message_type) if is_plain else _refuse
    if field.enum_type:
        return partial(_enum, frozenset(field.enum_type.values_by_name))
    if field.type == FieldDescriptor.TYPE_BYTES:
        return _bytes
    if field.cpp_type in _INTEGERS:
        return partial(_exactly, int)
    return {
        FieldDescriptor.CPPTYPE_FLOAT: partial(_number, _MAX_FLOAT),
        FieldDescriptor.CPPTYPE_DOUBLE: partial(_number, math.nextafter(math.inf, 0)),
        FieldDescriptor.CPPTYPE_BOOL: partial(_exactly, bool),
        FieldDescriptor.CPPTYPE_STRING: partial(_exactly, str),
    }[field.cpp_type]


def _refuse(_: Any) -> Any:
    raise NotPlain


def _exactly(kind: type, value: Any) -> Any:
    if type(value) is not kind:
        raise NotPlain
    return value


def _number(most: float, value: Any) -> float:
    if not (-most <= value <= most if type(value) is float else type(value) is int and abs(value) <= _MAX_EXACT):
        raise NotPlain
    return float(value)


def _enum(names: frozenset[str], value: Any) -> str:
    if type(value) is not str or value not in names:
        raise NotPlain
    return value


def _bytes(value: Any) -> bytes:
    # An error of it is a ValueError: such as for base64 with the letters of addresses.
    return binascii.a2b_base64(_exactly(str, value), strict_mode=True)


# Writing: a function for each kind of field gives what JSON has for its value.


@cache
def _writer(descriptor: Descriptor) -> Callable[[Any], Any]:
    if descriptor.full_name == "google.protobuf.Duration":
        return lambda message: message.ToJsonString()
    assert descriptor.file.package != "google.protobuf", f"{descriptor.full_name} has a form of its own. This is a bug."
    return partial(_fields_of, {field.number: (field.json_name, _field_writer(field)) for field in descriptor.fields})


def _fields_of(writers: dict[int, tuple[str, Callable[[Any], Any] | None]], message: Any) -> dict[str, Any]:
    fields = {}
    for field, value in message.ListFields():
        name, write = writers[field.number]
        fields[name] = value if write is None else write(value)
    return fields


def _field_writer(field: FieldDescriptor) -> Callable[[Any], Any] | None:
    """What makes JSON of a field's value. None: it is that already."""
    write = _value_writer(field)
    if field.is_repeated:
        return list if write is None else lambda values: [write(value) for value in values]
    return write


def _value_writer(field: FieldDescriptor) -> Callable[[Any], Any] | None:
    if field.message_type:
        assert not field.message_type.GetOptions().map_entry, f"{field.full_name} is a map. This is a bug."
        return _writer(field.message_type)
    if field.enum_type:
        return partial(_enum_name, field.enum_type)
    if field.type == FieldDescriptor.TYPE_BYTES:
        return lambda value: base64.b64encode(value).decode()
    if field.cpp_type in _LONG:
        return str
    return {FieldDescriptor.CPPTYPE_FLOAT: _float, FieldDescriptor.CPPTYPE_DOUBLE: _double}.get(field.cpp_type)


def _enum_name(kind: EnumDescriptor, number: int) -> str | int:
    value = kind.values_by_number.get(number)
    return value.name if value else number


def _double(value: float) -> float | str:
    if math.isfinite(value):
        return value
    return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"


def _float(value: float) -> float | str:
    """The shortest number that is this float32."""
    if not math.isfinite(value):
        return _double(value)
    for digits in (6, 7, 8):
        near = float(f"{value:.{digits}g}")
        if _FLOAT.unpack(_FLOAT.pack(near))[0] == value:
            return near
    return float(f"{value:.9g}")
