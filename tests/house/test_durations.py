"""tests/durations.tsv names tests that there are."""

from pathlib import Path

ROOT = Path(__file__).parents[2]


def test_each_line_names_a_test():
    """A line of a test that was renamed says nothing of it any more: write it anew, or take the line out."""
    lines = (ROOT / "tests" / "durations.tsv").read_text().splitlines()
    named = [line.split("\t")[1].split("::") for line in lines]

    assert [] == [f"{path}::{name}" for path, name in named if f"def {name}(" not in text_of(path)]
    assert len(named) > 100


def text_of(path):
    """What stands in a file, or nothing if it is gone."""
    file = ROOT / path
    return file.read_text() if file.exists() else ""
