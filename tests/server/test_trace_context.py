"""What is a traceparent, and what is none.

https://www.w3.org/TR/trace-context/#traceparent-header-field-values
"""

import pytest

from weft_server.calls.trace_context import TraceParent, parent_of
from weft_server.models.request_context import RequestContext

TRACE = "0af7651916cd43dd8448eb211c80319c"
SPAN = "b7ad6b7169203331"
GOOD = f"00-{TRACE}-{SPAN}-01"


@pytest.mark.parametrize(
    ("value", "flags"),
    [(GOOD, 1), (GOOD[:-2] + "ff", 255), ("cc" + GOOD[2:], 1), (f"cc{GOOD[2:]}-more", 1), (f"cc{GOOD[2:]}-", 1)],
)
def test_a_traceparent_is_read(value, flags):
    """Of the first version, which ends with its flags, and of later ones, which may have more."""
    assert TraceParent(TRACE, SPAN, flags) == parent_of(value)


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
        GOOD.replace(SPAN, "0" * 16),
        GOOD.replace("-", "_"),
        GOOD.replace("0af", "0ag"),
    ],
)
def test_what_is_no_traceparent_is_passed_over(value):
    """No error, and no trace: a caller's request is as good without it."""
    assert parent_of(value) is None


@pytest.mark.parametrize("second", [GOOD, f"-{GOOD}", "x", f"cc{GOOD[2:]}"])
def test_two_are_none(second):
    """Nobody knows which one holds."""
    call = RequestContext("Classify")
    call.hear([("traceparent", GOOD), ("x", "y"), ("traceparent", second)])
    assert parent_of(call.traceparent) is None
