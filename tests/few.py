"""How much of a law's cases a run tries: a few in `make test`, all of them in `make test-all`."""

import pytest

# Whether this is a run of all cases. conftest.py says it before tests are read.
all_cases = False


def counts(few, whole):
    """The values of a parameter that says how many cases a test draws."""
    return [few, pytest.param(whole, marks=pytest.mark.whole)]


def few_of(cases, few):
    """All cases as values of a parameter. Those that are not among the few are run by `make test-all` alone."""
    assert set(few) <= set(cases), f"{set(few) - set(cases)} are no cases"
    return [pytest.param(case, marks=() if case in few else pytest.mark.whole) for case in cases]


def draws(whole):
    """How many inputs Hypothesis draws for a test. They are others each time, and `make test` draws a third."""
    return whole if all_cases else whole // 3
