"""The header `traceparent`: in which trace a caller's request is.

https://www.w3.org/TR/trace-context/#traceparent-header
"""

from __future__ import annotations

import re

# Version, trace id, the caller's span, flags. A later version may have more behind them, and ff is none.
_TRACEPARENT = re.compile(r"((?!ff)[0-9a-f]{2})-((?!0{32})[0-9a-f]{32})-(?!0{16})[0-9a-f]{16}-[0-9a-f]{2}(-.*)?")
_FIRST_VERSION = "00"


def trace_id_of(traceparent: str) -> str:
    """Return the trace id, 32 hexadecimal digits. Empty for what is no traceparent: the standard has it ignored."""
    found = _TRACEPARENT.fullmatch(traceparent)
    if found is None:
        return ""
    version, trace_id, more = found.groups()
    return "" if version == _FIRST_VERSION and more is not None else trace_id
