"""Counts the fields of an ONNX file before it is parsed: tens of millions of empty ones would be gigabytes."""

from __future__ import annotations

from typing import Any

import onnx
from google.protobuf.descriptor import FieldDescriptor
from google.protobuf.message import DecodeError

from weft_server.errors import BundleError
from weft_server.varints import num_varints, varint

# A node has some 28 with its attributes, so this is a graph of 70,000 nodes. Ours have a few hundred. Packed integers
# count, for each may be one byte and becomes eight.
MAX_GRAPH_FIELDS = 2_000_000
# Of messages inside of each other. protobuf takes no more.
_MAX_DEPTH = 100
_VARINT, _FIXED64, _SIZED, _FIXED32 = 0, 1, 2, 5
_INTEGERS = {FieldDescriptor.CPPTYPE_INT32, FieldDescriptor.CPPTYPE_INT64, FieldDescriptor.CPPTYPE_UINT64}
# What is inside a field, by what stands before it: fields again, or None where there are integers.
_Inside = dict[int, "_Inside | None"]


def verify_fields(data: bytes, path: str) -> None:
    """Refuse a graph of more than MAX_GRAPH_FIELDS fields. What passes becomes 400 MB at most, beside its bytes.

    Raises DecodeError for what is no message, and for messages too deep inside of each other.
    """
    try:
        left = _walk(data, 0, len(data), _MODEL, MAX_GRAPH_FIELDS, _MAX_DEPTH)
    except IndexError:
        raise DecodeError from None
    if left < 0:
        raise BundleError(f"{path} has more than {MAX_GRAPH_FIELDS:,} fields")


def _walk(data: bytes, at: int, end: int, fields: _Inside, left: int, depth: int) -> int:
    """Return how many fields are left of so many behind those from `at` to `end`. Below 0 the rest is not counted."""
    if not depth:
        raise DecodeError
    while at < end and left >= 0:
        tag, at = (data[at], at + 1) if data[at] < 128 else varint(data, at)
        left -= 1
        kind = tag & 7
        if kind == _SIZED:
            size, at = (data[at], at + 1) if data[at] < 128 else varint(data, at)
            stop = at + size
            if tag in fields:
                inside = fields[tag]
                if inside is None:
                    left -= num_varints(data, at, stop, left)
                else:
                    left = _walk(data, at, stop, inside, left, depth - 1)
            at = stop
        elif kind == _VARINT:
            at = at + 1 if data[at] < 128 else varint(data, at)[1]
        elif kind in (_FIXED32, _FIXED64):
            at += 4 if kind == _FIXED32 else 8
        else:
            raise DecodeError
    if at > end:
        raise DecodeError
    return left


def _inside(message: Any, made: dict[str, _Inside]) -> _Inside:
    """Return what is inside the fields of a message, given its descriptor. Messages may hold their like."""
    if message.full_name not in made:
        fields = made[message.full_name] = {}
        for field in message.fields:
            tag = field.number << 3 | _SIZED
            if field.message_type:
                fields[tag] = _inside(field.message_type, made)
            elif field.is_repeated and field.cpp_type in _INTEGERS:
                fields[tag] = None
    return made[message.full_name]


_MODEL = _inside(onnx.ModelProto.DESCRIPTOR, {})
