"""Refuses a JSON body in which an object has a name twice: a proxy may have judged the one that no reader takes.

Decoders drop all but the last without a word. So the body is written again from what was read: a name that was dropped
takes its colon along. That costs 3 us for a small chat, where a hook for each object costs 20.
"""

from __future__ import annotations

import json
from typing import Any

import msgspec

from weft_server.errors import InvalidRequest

_SHOWN = 128
# A colon that is written so is one more when it is written again.
_ESCAPED = (b"\\u003a", b"\\u003A")


def check_once(body: bytes) -> None:
    """Raise InvalidRequest for a name that comes twice in an object. The body is JSON."""
    if not any(each in body for each in _ESCAPED) and body.count(b":") == _rewritten(body).count(b":"):
        return
    try:
        _read(body.decode())
    except _TwiceError as twice:
        (name,) = twice.args
        raise InvalidRequest(name[:_SHOWN], "comes twice in one object", "MALFORMED_REQUEST") from None
    except RecursionError as error:
        raise InvalidRequest("", "the body is nested too deeply", "BAD_JSON") from error


def _rewritten(body: bytes) -> bytes:
    """The body in other words, or nothing where it has a number that no reader takes."""
    try:
        return msgspec.json.encode(msgspec.json.decode(body))
    except (msgspec.DecodeError, RecursionError):
        return b""


class _TwiceError(Exception):
    """Its argument is the name."""


def _check(pairs: list[tuple[str, Any]]) -> None:
    names = set()
    for name, _ in pairs:
        if name in names:
            raise _TwiceError(name)
        names.add(name)


# Numbers stay texts: of an integer, Python reads only so many digits.
_read = json.JSONDecoder(object_pairs_hook=_check, parse_int=str, parse_float=str).decode
