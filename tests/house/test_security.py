"""SECURITY.md names tests that are there."""

import re
from pathlib import Path

ROOT = Path(__file__).parents[2]


def test_each_promise_names_a_test():
    """Every row of its tables of promises names files of tests, and each of them exists."""
    page = (ROOT / "SECURITY.md").read_text()
    promises = page.split("## What is defended", 1)[1].split("\n## ", 1)[0]
    rows = [row for row in re.findall(r"^\| (.*) \|$", promises, re.MULTILINE) if not row.startswith(("Promise", "-"))]
    files = {path.name: path for path in (ROOT / "tests").rglob("test_*.py")}

    assert len(rows) > 20
    for row in rows:
        named = re.findall(r"`((?:\w+/)*test_\w+\.py)`", row)
        assert named, row
        assert not [name for name in named if not str(files.get(Path(name).name, "")).endswith(name)], row
