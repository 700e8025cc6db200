"""The line and the headers of a response, as HTTP/1.1 has them."""

from __future__ import annotations

import time
from email.utils import formatdate
from functools import lru_cache
from http import HTTPStatus
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

CONTINUE = b"HTTP/1.1 100 Continue\r\n\r\n"
# Of those that http has no phrase for.
_PHRASES = {499: "Client Closed Request"}


def head_of(
    status: int, content_type: str, headers: Sequence[tuple[str, str]], length: int | None, *, ends: bool
) -> bytes:
    """Return the head of a response.

    `length` is that of the body, -1 for chunks, or None if the connection's end says it. `ends`: whether the connection
    ends after it. The values of headers are ours, or printable: none has a line break.
    """
    lines = [_first_line(status), _date(int(time.time()))]
    lines += [f"content-type: {content_type}\r\n"] if content_type else []
    lines += [f"{name}: {value}\r\n" for name, value in headers]
    if length is not None:
        lines.append("transfer-encoding: chunked\r\n" if length < 0 else f"content-length: {length}\r\n")
    lines.append("connection: close\r\n\r\n" if ends else "\r\n")
    return "".join(lines).encode("latin-1")


@lru_cache
def _first_line(status: int) -> str:
    return f"HTTP/1.1 {status} {_PHRASES.get(status) or HTTPStatus(status).phrase}\r\n"


@lru_cache(1)
def _date(second: int) -> str:
    return f"date: {formatdate(second, usegmt=True)}\r\n"
