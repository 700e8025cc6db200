"""JSON Schemas of the messages of weft.v1, as protojson writes them: https://protobuf.dev/programming-guides/json/."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from google.protobuf.descriptor import FieldDescriptor

from weft_server.api.contract_comments import comments_of

if TYPE_CHECKING:
    from google.protobuf.descriptor import Descriptor, EnumDescriptor

SCHEMAS_AT = "#/components/schemas/"
_INTEGER = {"type": "integer", "format": "int32"}
_NATURAL = {"type": "integer", "format": "uint32", "minimum": 0}
# JavaScript's numbers do not hold them all, so they are written as texts. Both are read.
_LONG = {"type": ["string", "integer"], "format": "int64"}
_LONG_NATURAL = {"type": ["string", "integer"], "format": "uint64"}
_SCALARS: dict[int, dict[str, Any]] = {
    FieldDescriptor.TYPE_DOUBLE: {"type": "number", "format": "double"},
    FieldDescriptor.TYPE_FLOAT: {"type": "number", "format": "float"},
    FieldDescriptor.TYPE_INT32: _INTEGER,
    FieldDescriptor.TYPE_UINT32: _NATURAL,
    FieldDescriptor.TYPE_INT64: _LONG,
    FieldDescriptor.TYPE_UINT64: _LONG_NATURAL,
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


def schemas_of(*messages: Descriptor) -> dict[str, Any]:
    """Return the schemas of messages and of all that they hold, by full name."""
    found: dict[str, Any] = {}
    left: list[Descriptor | EnumDescriptor] = list(messages)
    while left:
        each = left.pop()
        if each.full_name in found:
            continue
        if hasattr(each, "values"):
            found[each.full_name] = _enum(each)
        else:
            found[each.full_name] = _message(each)
            left += [inside for field in each.fields for inside in _held(field)]
    return found


def _held(field: FieldDescriptor) -> list[Any]:
    """The message or the enum that a field holds, if that has a schema of its own."""
    if _is_map(field):
        return _held(field.message_type.fields_by_name["value"])
    kind = field.message_type or field.enum_type
    return [] if kind is None or kind.full_name in _WELL_KNOWN else [kind]


def _message(message: Descriptor) -> dict[str, Any]:
    comments = comments_of(message.file.name)
    properties = {}
    for field in message.fields:
        properties[field.json_name] = _field(field) | _said(comments.get(field.full_name))
    said = [comments.get(message.full_name, "")]
    for group in message.oneofs:
        # A field that is optional is a group of its own, without a comment.
        if len(group.fields) > 1:
            said.append(f"At most one of {', '.join(field.json_name for field in group.fields)}.")
    schema = {"type": "object", "properties": properties, "additionalProperties": False}
    return schema | _said(" ".join(filter(None, said)))


def _enum(enum: EnumDescriptor) -> dict[str, Any]:
    comments = comments_of(enum.file.name)
    said = [comments.get(enum.full_name, ""), *(comments.get(f"{enum.full_name}.{each.name}", "") for each in enum.values)]
    return {"type": "string", "enum": [each.name for each in enum.values]} | _said(" ".join(filter(None, said)))


def _field(field: FieldDescriptor) -> dict[str, Any]:
    if _is_map(field):
        return {"type": "object", "additionalProperties": _single(field.message_type.fields_by_name["value"])}
    return {"type": "array", "items": _single(field)} if field.is_repeated else _single(field)


def _single(field: FieldDescriptor) -> dict[str, Any]:
    kind = field.message_type or field.enum_type
    if kind is None:
        return dict(_SCALARS[field.type])
    return dict(_WELL_KNOWN.get(kind.full_name) or reference(kind.full_name))


def _is_map(field: FieldDescriptor) -> bool:
    return bool(field.message_type and field.message_type.GetOptions().map_entry)


def _said(comment: str | None) -> dict[str, Any]:
    return {"description": comment} if comment else {}
