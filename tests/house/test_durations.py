"""tests/durations.tsv and tests/nightly.tsv name tests that there are, and what `make test` keeps ends in time."""

from pathlib import Path

import pytest

import nightly

ROOT = Path(__file__).parents[2]
# Seconds of all tests of `make test` together that durations.tsv has: four at a time.
MOST_S = 1750


def test_each_line_names_a_test():
    """A line of a test that was renamed says nothing of it any more: write it anew, or take the line out."""
    named = [test for _, test in durations()]

    assert [] == [test for test in named if not is_test(test)]
    assert len(named) > 100


def test_what_make_test_keeps_ends_in_time():
    """Whoever adds a slow test makes another faster, or leaves cases of it to `make test-all` in tests/nightly.tsv."""
    assert sum(seconds for seconds, _ in durations()) < MOST_S


def test_what_make_test_leaves_out_is_held_by_another():
    """Each line of nightly.tsv names tests that there are, and holders of which `make test` runs something."""
    table = nightly.lines()
    left = {tests for tests, (patterns, _) in table.items() if not patterns}
    holders = {holder for _, others in table.values() for holder in others}

    assert [] == [test for test in {*table, *holders} if test[0] != "[" and not is_test(test)]
    assert [] == [tests for tests, (patterns, others) in table.items() if not patterns and not others]
    assert set() == {holder for holder in holders if {holder, holder.partition("::")[0]} & left}


class Item:
    """A case of a test, as far as marking asks it."""

    def __init__(self, nodeid, *fixtures):
        self.nodeid, self.fixturenames, self.marks = nodeid, fixtures, []
        self.add_marker = self.marks.append


@pytest.fixture
def table(tmp_path, monkeypatch):
    """A table of its own."""
    monkeypatch.setattr(nightly, "FILE", tmp_path / "nightly.tsv")
    lines = ["a::test_some\t[one] [two-*]", "a::test_all\tb::test_holder"]
    lines += ["c\tb::test_holder", "[*tiny-t5-int8*]\tb::test_holder"]
    nightly.FILE.write_text("\n".join(lines))


def test_cases_that_are_not_named_stay_away(table):
    """Of a function with cases all others, of one without all, all of a file, and who asks for what is not made."""
    stays = ["a::test_some[one]", "a::test_some[two-3]", "a::test_other", "b::test_holder[tiny-t5]"]
    goes = ["a::test_some[three]", "a::test_some[one-more]", "a::test_all", "a::test_all[x]"]
    goes += ["c::test_any", "b::test_holder[tiny-t5-int8-40]"]
    items = [Item(name, "tiny_bundles_of") for name in (*stays, *goes)]
    stays.append("b::test_without_bundles[tiny-t5-int8]")
    items.append(Item(stays[-1], "tmp_path"))
    nightly.mark(items, is_part=False)
    assert [False, True] == [nightly.is_made(bundle) for bundle in ("tiny-t5-int8", "tiny-t5")]
    assert {"": stays, "whole": goes} == {
        mark: [item.nodeid for item in items if mark == "".join(item.marks)] for mark in ("", "whole")
    }


def test_a_case_that_is_named_and_not_there_is_an_error(table):
    """Unless some cases alone are asked for: then it may be another."""
    items = [Item("a::test_some[one]")]
    nightly.mark(items, is_part=True)
    with pytest.raises(pytest.UsageError, match=r"cases that there are not: .*two-"):
        nightly.mark(items, is_part=False)


def durations():
    """The seconds and the name of each test of durations.tsv."""
    lines = (ROOT / "tests" / "durations.tsv").read_text().splitlines()
    return [(float(seconds), test) for seconds, test in (line.split("\t") for line in lines)]


def is_test(test):
    """Whether a file, or a function in one, is there."""
    path, _, name = test.partition("::")
    file = ROOT / path
    return file.is_file() and (not name or f"def {name}(" in file.read_text())
