"""JSON Schemas of the messages of weft.v1, as protojson writes them: https://protobuf.dev/programming-guides/json/."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from google.protobuf.descriptor import FieldDescriptor

from weft_server.api.contract_comments import comments_of

if TYPE_CHECKING:
    from google.protobuf.descriptor import Descriptor, EnumDescriptor

SCHEMAS_AT = "#/components/schemas/"
# Those that the contracts have.
_SCALARS: dict[int, dict[str, Any]] = {
    FieldDescriptor.TYPE_DOUBLE: {"type": "number", "format": "double"},
    FieldDescriptor.TYPE_FLOAT: {"type": "number", "format": "float"},
    FieldDescriptor.TYPE_UINT32: {"type": "integer", "format": "uint32", "minimum": 0},
    # JavaScript's numbers do not hold them all, so they are written as texts. Both are read.
    FieldDescriptor.TYPE_UINT64: {"type": ["string", "integer"], "format": "uint64"},
    FieldDescriptor.TYPE_BOOL: {"type": "boolean"},
    FieldDescriptor.TYPE_STRING: {"type": "string"},
    FieldDescriptor.TYPE_BYTES: {"type": "string", "contentEncoding": "base64"},
}
# Messages of protobuf's own that are written as something else.
_WELL_KNOWN: dict[str, dict[str, Any]] = {
    "google.protobuf.Duration": {"type": "string", "pattern": r"^-?\d+(\.\d{1,9})?s$"},
}


def reference(name: str) -> dict[str, Any]:
    """Return what stands for a schema of the document."""
    return {"$ref": f"{SCHEMAS_AT}{name}"}


def schemas_of(*messages: Any) -> dict[str, Any]:
    """Return the schemas of messages and of all that they hold, by full name. They are given as their descriptors."""
    found: dict[str, Any] = {}
    left = list(messages)
    while left:
        message = left.pop()
        if message.full_name in found:
            continue
        found[message.full_name] = _message(message)
        for field in message.fields:
            if field.enum_type:
                found[field.enum_type.full_name] = _enum(field.enum_type)
            elif field.message_type and field.message_type.full_name not in _WELL_KNOWN:
                left.append(field.message_type)
    return found


def _message(message: Descriptor) -> dict[str, Any]:
    comments = comments_of(message.file.name)
    properties = {}
    for field in message.fields:
        properties[field.json_name] = _field(field) | _said(comments.get(field.full_name))
    # An optional field is a group of its own.
    groups = [[field.json_name for field in group.fields] for group in message.oneofs if len(group.fields) > 1]
    said = [comments.get(message.full_name), *(f"At most one of {', '.join(group)}." for group in groups)]
    schema = {"type": "object", "properties": properties, "additionalProperties": False}
    return schema | _said(*said)


def _enum(enum: EnumDescriptor) -> dict[str, Any]:
    comments = comments_of(enum.file.name)
    names = [each.name for each in enum.values]
    said = [comments.get(enum.full_name), *(comments.get(f"{enum.full_name}.{name}") for name in names)]
    return {"type": "string", "enum": names} | _said(*said)


def _field(field: FieldDescriptor) -> dict[str, Any]:
    return {"type": "array", "items": _single(field)} if field.is_repeated else _single(field)


def _single(field: FieldDescriptor) -> dict[str, Any]:
    kind = field.message_type or field.enum_type
    if kind is None:
        return dict(_SCALARS[field.type])
    return dict(_WELL_KNOWN.get(kind.full_name) or reference(kind.full_name))


def _said(*comments: str | None) -> dict[str, Any]:
    said = " ".join(filter(None, comments))
    return {"description": said} if said else {}
