"""What `make test` leaves to `make test-all`: cases whose law others hold in less time.

A line of nightly.tsv is a file or a function of tests, a tab, and who holds the law in `make test`: some of its own
cases, as `[one] [two-*]`, or another test. All its other cases are marked `whole`.

A line may begin with a tiny bundle instead, as `[*tiny-t5-int8*]`: `make test` does not make it. The cases that ask for
it are marked `whole`, of whatever test.
"""

import re
from pathlib import Path

import pytest

FILE = Path(__file__).with_suffix(".tsv")
# The fixture by which any other comes to tiny bundles.
_BUNDLES = "tiny_bundles_of"


def lines():
    """By file or function: the patterns of its cases that stay, and the tests that hold its law."""
    table = {}
    for line in FILE.read_text().splitlines():
        tests, who = line.split("\t")
        holders = re.split(r" (?=\[|tests/)", who)
        table[tests] = [each for each in holders if each[0] == "["], [each for each in holders if each[0] != "["]
    return table


def mark(items, *, is_part):
    """Mark the cases that stay away from `make test`.

    is_part: only some cases may be there. Else a pattern that no case fits is an error.
    """
    table, found, without = lines(), set(), set()
    unmade = [_pattern(tests) for tests in table if tests[0] == "["]
    for item in items:
        function, bracket, case = item.nodeid.partition("[")
        if _BUNDLES in item.fixturenames and any(each.fullmatch(bracket + case) for each in unmade):
            item.add_marker("whole")
        for tests in {function, function.partition("::")[0]} & table.keys():
            fits = {(tests, each) for each in table[tests][0] if _pattern(each).fullmatch(bracket + case)}
            found |= fits
            without |= {(tests, each) for each in table[tests][0]}
            if not fits:
                item.add_marker("whole")
    if not is_part and without - found:
        raise pytest.UsageError(f"nightly.tsv names cases that there are not: {sorted(without - found)}")


def is_made(bundle):
    """Whether `make test` makes a tiny bundle."""
    return not any(_pattern(tests).fullmatch(f"[{bundle}]") for tests in lines() if tests[0] == "[")


def _pattern(text):
    return re.compile(".*".join(map(re.escape, text.split("*"))))
