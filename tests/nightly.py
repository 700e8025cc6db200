"""What `make test` leaves to `make test-all`: cases whose law others hold in less time.

A line of nightly.tsv is a file or a function of tests, a tab, and who holds the law in `make test`: some of its own
cases, as `[one] [two-*]`, or another test. All its other cases are marked `whole`. So are the cases of whatever test
that a line begins with, as `[*tiny-t5-int8*]`: those of a bundle that is then not made.
"""

import re
from pathlib import Path

import pytest

FILE = Path(__file__).with_suffix(".tsv")


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
    everywhere = [_pattern(tests) for tests in table if tests[0] == "["]
    for item in items:
        function, bracket, case = item.nodeid.partition("[")
        if any(each.fullmatch(bracket + case) for each in everywhere):
            item.add_marker("whole")
        for tests in {function, function.partition("::")[0]} & table.keys():
            fits = {(tests, each) for each in table[tests][0] if _pattern(each).fullmatch(bracket + case)}
            found |= fits
            without |= {(tests, each) for each in table[tests][0]}
            if not fits:
                item.add_marker("whole")
    if not is_part and without - found:
        raise pytest.UsageError(f"nightly.tsv names cases that there are not: {sorted(without - found)}")


def _pattern(text):
    return re.compile(".*".join(map(re.escape, text.split("*"))))
