"""The caller's trace, which goes with its calls where the process uses OpenTelemetry. Elsewhere nothing is imported."""

import sys
from collections.abc import Collection


def trace_headers(given: Collection[str]) -> tuple[tuple[str, str], ...]:
    """Return the headers that OpenTelemetry sends with a call that is made here and now, such as traceparent.

    Those that are `given` already are left out.
    """
    if "opentelemetry.trace" not in sys.modules:
        return ()
    from opentelemetry.propagate import inject  # noqa: PLC0415 - the process has chosen to use it

    headers: dict[str, str] = {}
    inject(headers)
    # gRPC takes names in small letters alone.
    return tuple((name.lower(), value) for name, value in headers.items() if name.lower() not in given)
