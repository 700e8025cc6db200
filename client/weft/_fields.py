"""Fields of messages: set from what a caller gave, refused by their names, read where they are set."""

from typing import Any

from google.protobuf.message import Message

from weft.exceptions import FieldViolation, InvalidRequest


def refusal(field: str, why: str, reason: str = "INVALID_FIELD") -> InvalidRequest:
    """Make the error that names a field of the request, and why it can't be sent."""
    return InvalidRequest(f"{field}: {why}", reason=reason, field_violations=(FieldViolation(field, why),))


def fill(message: Message, within: str = "", /, **values: Any) -> None:
    """Set every field whose value is not None; protobuf refuses wrong types, numbers out of range and bad Unicode.

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
        except (TypeError, ValueError, OverflowError) as error:
            raise refusal(within + field, str(error)) from None


def optional(message: Any, field: str) -> Any:
    """Give a field that is set, else None."""
    return getattr(message, field) if message.HasField(field) else None
