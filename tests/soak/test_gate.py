"""The gate can fail: each thing that it looks at, broken alone, is the one that is not kept."""

from collections import Counter

import pytest
from accounts import differences
from caller import Ended
from gate import judge
from others import Sample
from soaking import Rest, Soak


def ended(fault, code, *, is_wrong=False):
    """A call."""
    return Ended(1, 0.0, 0.01, "tag", "tag, plain", fault, code, is_wrong)


def samples(growth_mb):
    """An hour's samples of a server that grows so much."""
    return [Sample(60.0 * at, 300 + growth_mb * at / 60 + at % 2, 20, 50, 0.0, 0.0) for at in range(61)]


def sound(**changed):
    """A soak in which all is well, but for what is changed."""
    calls = [ended("none", "OK")] * 990 + [ended("bad input", "INVALID_ARGUMENT")] * 9 + [ended("cancel", "CANCELLED")]
    server = Counter({("none", "tags", "OK"): 990, ("", "tags", "INVALID_ARGUMENT"): 9, ("killed", "tags", "OK"): 4})
    counted = Counter({("tags", "OK"): 994, ("tags", "INVALID_ARGUMENT"): 9})
    rest = Rest({}, 20, 50)
    return Soak(calls, samples(1.0), rest, rest, server, counted, 3, 1, 4, [])._replace(**changed)


def broken(soak):
    """What is not kept."""
    return [verdict.what for verdict in judge(soak) if not verdict.is_kept]


def test_a_sound_soak_passes():
    """All is kept."""
    assert [] == broken(sound())


@pytest.mark.parametrize(
    ("call", "what"),
    [
        (ended("cancel", "INTERNAL"), "lost"),
        (ended("cancel", "no end"), "lost"),
        (ended("deadline", "CANCELLED"), "lost"),
        (ended("cancel", "client: refused here"), "lost"),
        (ended("cancel", "OK", is_wrong=True), "wrong"),
    ],
)
def test_one_call_is_enough(call, what):
    """One call that is lost or wrong, of a thousand, is not kept."""
    soak = sound()

    assert what in broken(soak._replace(calls=[*soak.calls, call]))


@pytest.mark.parametrize(
    ("changed", "what"),
    [
        ({"samples": samples(100.0)}, "memory"),
        ({"after": Rest({"weft_requests_running": 1.0}, 20, 50)}, "gauges at rest"),
        ({"after": Rest({}, 21, 50)}, "open files at rest"),
        ({"after": Rest({}, 20, 51)}, "threads at rest"),
        ({"errors": ["Unavailable: no swap"]}, "swaps, kills, server's log"),
        ({"killed": 3}, "accounts of clients and server"),
        ({"calls": [ended("none", "OK")] * 990}, "accounts of clients and server"),
    ],
)
def test_each_promise_can_break(changed, what):
    """Each thing is found alone."""
    assert [what] == broken(sound(**changed))


def test_a_flood_of_refusals_is_no_soak():
    """A refusal for the load is no loss. Where more than one in a hundred is refused, that is not kept."""
    soak = sound()
    few, many = ([*soak.calls, *[ended("none", "RESOURCE_EXHAUSTED")] * count] for count in (10, 11))

    assert [] == broken(soak._replace(calls=few))
    assert ["refused for the load"] == broken(soak._replace(calls=many))


def test_the_accounts_say_what_differs():
    """An answer that no client counted, and a counter that lags, are named with both numbers."""
    more = sound().ended + Counter({("none", "tags", "OK"): 1})

    assert [
        "none: OK: clients counted 990, the server 991",
        "tags OK: the log has 995, weft_requests_total is 994",
    ] == differences(sound(ended=more))
