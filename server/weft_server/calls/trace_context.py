"""What a request's headers say of the trace that it belongs to: https://www.w3.org/TR/trace-context/."""

from __future__ import annotations

import re
from typing import NamedTuple

# Version, trace id, the caller's span, flags. A later version may have more behind them, and ff is none.
_TRACEPARENT = re.compile(
    r"((?!ff)[0-9a-f]{2})-((?!0{32})[0-9a-f]{32})-((?!0{16})[0-9a-f]{16})-([0-9a-f]{2})(-.*)?",
)
_FIRST_VERSION = "00"


class TraceParent(NamedTuple):
    """A span, and its trace. Both ids are hexadecimal digits."""

    trace_id: str
    span_id: str
    flags: int


def parent_of(traceparent: str) -> TraceParent | None:
    """Return what a traceparent says. None for what is no traceparent: the standard has it ignored."""
    found = _TRACEPARENT.fullmatch(traceparent)
    if found is None:
        return None
    version, trace_id, span_id, flags, more = found.groups()
    return None if version == _FIRST_VERSION and more is not None else TraceParent(trace_id, span_id, int(flags, 16))
