"""What is a traceparent, and what is none.

https://www.w3.org/TR/trace-context/#traceparent-header-field-values
"""

import pytest

from weft_server.calls.access_log import trace_id_of
from weft_server.models.request_context import RequestContext

TRACE = "0af7651916cd43dd8448eb211c80319c"
GOOD = f"00-{TRACE}-b7ad6b7169203331-01"


@pytest.mark.parametrize("value", [GOOD, GOOD[:-2] + "ff", "cc" + GOOD[2:], f"cc{GOOD[2:]}-more", f"cc{GOOD[2:]}-"])
def test_a_trace_id_is_read(value):
    """Of the first version, which ends with its flags, and of later ones, which may have more."""
    assert TRACE == trace_id_of(value)


@pytest.mark.parametrize(
    "value",
    [
        "",
        "ff" + GOOD[2:],
        f"{GOOD}-more",
        f"{GOOD}-",
        f"cc{GOOD[2:]}more",
        GOOD.upper(),
        GOOD[:-1],
        f" {GOOD}",
        f"{GOOD}\n",
        GOOD.replace(TRACE, "0" * 32),
        GOOD.replace("b7ad6b7169203331", "0" * 16),
        GOOD.replace("-", "_"),
        GOOD.replace("0af", "0ag"),
    ],
)
def test_what_is_no_traceparent_is_passed_over(value):
    """No error, and no trace: a caller's request is as good without it."""
    assert "" == trace_id_of(value)


@pytest.mark.parametrize("second", [GOOD, f"-{GOOD}", "x", f"cc{GOOD[2:]}"])
def test_two_are_none(second):
    """Nobody knows which one holds."""
    call = RequestContext("Classify")
    call.hear([("traceparent", GOOD), ("x", "y"), ("traceparent", second)])
    assert "" == trace_id_of(call.traceparent)
