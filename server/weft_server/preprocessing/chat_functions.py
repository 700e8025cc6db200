"""Functions that a chat's template tells a model of, and calls that earlier messages made, as templates take them."""

from __future__ import annotations

import json
import math
import re
from typing import TYPE_CHECKING, Any

from weft_server.errors import InvalidRequest

if TYPE_CHECKING:
    from collections.abc import Sequence

    from weft_proto.v1 import common_pb2, generation_pb2

# Of one request, and of calls of one message.
MAX_FUNCTIONS = 128
# Of a schema, and of a call's arguments.
MAX_JSON_BYTES = 65_536
# One that the server gives has a request's id in it.
MAX_CALL_ID_CHARS = 128
# A template may print a number again and again.
_MAX_DIGITS = 300
_NAME = re.compile(r"[a-zA-Z0-9_-]{1,64}")


def tools_of(functions: Sequence[generation_pb2.Function], field: str) -> list[dict[str, Any]]:
    """Return `tools`, in the order of keys that transformers gives. Raises InvalidRequest."""
    _check_count(len(functions), field)
    names: set[str] = set()
    tools = []
    for index, function in enumerate(functions):
        place = f"{field}[{index}]"
        if function.name in names:
            raise InvalidRequest(f"{place}.name", "comes twice")
        names.add(_checked_name(function.name, place))
        told: dict[str, Any] = {"name": function.name, "description": function.description}
        if function.parameters:
            told["parameters"] = _object_of(function.parameters, f"{place}.parameters")
        tools.append({"type": "function", "function": told})
    return tools


def calls_of(calls: Sequence[common_pb2.FunctionCall], field: str) -> list[dict[str, Any]]:
    """Return `tool_calls` of a message. Raises InvalidRequest."""
    _check_count(len(calls), field)
    given = []
    for index, call in enumerate(calls):
        place = f"{field}[{index}]"
        arguments = _object_of(call.arguments or "{}", f"{place}.arguments")
        function = {"name": _checked_name(call.name, place), "arguments": arguments}
        given.append({"id": checked_id(call.id, f"{place}.id"), "type": "function", "function": function})
    return given


def _check_count(count: int, field: str) -> None:
    if count > MAX_FUNCTIONS:
        raise InvalidRequest(field, f"must be at most {MAX_FUNCTIONS}, not {count:,}")


def checked_id(call_id: str, field: str) -> str:
    """Return the id of a call. Raises InvalidRequest for one that is too long."""
    if len(call_id) > MAX_CALL_ID_CHARS:
        raise InvalidRequest(field, f"must be at most {MAX_CALL_ID_CHARS} characters")
    return call_id


def _checked_name(name: str, place: str) -> str:
    if not _NAME.fullmatch(name):
        raise InvalidRequest(f"{place}.name", "must be 1..64 letters, digits, `_` and `-`")
    return name


def _object_of(text: str, field: str) -> dict[str, Any]:
    if len(text.encode()) > MAX_JSON_BYTES:
        raise InvalidRequest(field, f"must be at most {MAX_JSON_BYTES:,} bytes of UTF-8")
    try:
        value = json.loads(text, parse_int=_int, parse_float=_float, parse_constant=_float)
        # Half of a surrogate pair is no text.
        json.dumps(value, ensure_ascii=False).encode()
    except (ValueError, RecursionError):
        value = None
    if not isinstance(value, dict):
        raise InvalidRequest(field, f"must be a JSON object, with numbers of at most {_MAX_DIGITS} digits")
    return value


def _int(digits: str) -> int:
    if len(digits) > _MAX_DIGITS:
        raise ValueError(digits)
    return int(digits)


def _float(digits: str) -> float:
    value = float(digits)
    if not math.isfinite(value):
        raise ValueError(digits)
    return value
