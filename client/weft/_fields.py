"""Fields of messages: set from what a caller gave, refused by their names, read where they are set."""

import math
from typing import Any

from google.protobuf.descriptor import FieldDescriptor
from google.protobuf.message import Message

from weft.exceptions import FieldViolation, InvalidRequest

_WHOLE = ("a whole number", (int,))
_TAKES: dict[int, tuple[str, tuple[type, ...]]] = {
    FieldDescriptor.CPPTYPE_STRING: ("a text", (str,)),
    FieldDescriptor.CPPTYPE_BOOL: ("True or False", (bool,)),
    FieldDescriptor.CPPTYPE_FLOAT: ("a number", (int, float)),
    FieldDescriptor.CPPTYPE_DOUBLE: ("a number", (int, float)),
    FieldDescriptor.CPPTYPE_INT32: _WHOLE,
    FieldDescriptor.CPPTYPE_INT64: _WHOLE,
    FieldDescriptor.CPPTYPE_UINT32: _WHOLE,
    FieldDescriptor.CPPTYPE_UINT64: _WHOLE,
    FieldDescriptor.CPPTYPE_ENUM: _WHOLE,
    FieldDescriptor.CPPTYPE_MESSAGE: ("a message", (Message,)),
}
_RANGES = {
    FieldDescriptor.CPPTYPE_INT32: (-(2**31), 2**31 - 1),
    FieldDescriptor.CPPTYPE_INT64: (-(2**63), 2**63 - 1),
    FieldDescriptor.CPPTYPE_UINT32: (0, 2**32 - 1),
    FieldDescriptor.CPPTYPE_UINT64: (0, 2**64 - 1),
}


def refusal(field: str, why: str, reason: str = "INVALID_FIELD") -> InvalidRequest:
    """Make the error that names a field of the request, and why it can't be sent."""
    return InvalidRequest(f"{field}: {why}", reason=reason, field_violations=(FieldViolation(field, why),))


def fill(message: Message, within: str = "", /, **values: Any) -> None:
    """Set every field whose value is not None. Wrong types, numbers out of range and bad Unicode are refused.

    `within` is the path of the message in the request: a field is refused by the name that the server has for it.
    """
    for field, value in values.items():
        if value is None:
            continue
        try:
            if isinstance(value, Message):
                getattr(message, field).CopyFrom(value)
            elif isinstance(value, tuple):
                getattr(message, field).extend(value)
            else:
                setattr(message, field, value)
        except UnicodeEncodeError as error:
            why = f"is no text in Unicode: {error.object[error.start]!r} at place {error.start}"
            raise refusal(within + field, why) from None
        except (TypeError, ValueError, OverflowError):
            raise refusal(within + field, _why(message.DESCRIPTOR.fields_by_name[field].cpp_type, value)) from None


def _why(kind: int, value: Any) -> str:
    """Say what a field of a kind takes, and what it was given instead. protobuf's own words are for its authors."""
    takes, types = _TAKES[kind]
    low, high = _RANGES.get(kind, (-math.inf, math.inf))
    if kind in _RANGES:
        takes = f"{takes} from {low} to {high}"

    def is_right(each: Any) -> bool:
        return isinstance(each, types) and (not isinstance(each, int) or low <= each <= high)

    each, wrong = "", value
    if isinstance(value, tuple):
        each, wrong = "each ", next((one for one in value if not is_right(one)), value)
    is_number = int in types and isinstance(wrong, int | float)
    return f"must {each}be {takes}, not {wrong if is_number else type(wrong).__name__}"


def optional(message: Any, field: str) -> Any:
    """Give a field that is set, else None."""
    return getattr(message, field) if message.HasField(field) else None
