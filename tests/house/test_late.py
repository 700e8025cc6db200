"""Collecting tests stays quick: each of xdist's workers collects every file."""

import ast
from pathlib import Path

TESTS = Path(__file__).parents[1]
# They take from half a second of the processor to three.
SLOW = {"matplotlib", "peft", "sentence_transformers"}
# Those of targets of their own.
APART = {"bench", "gpu", "real", "soak"}


def imported(path):
    """The modules that a file imports when it is collected, and what it imports of them."""
    for node in ast.parse(path.read_text()).body:
        if isinstance(node, ast.Import):
            yield from (each.name for each in node.names)
        elif isinstance(node, ast.ImportFrom):
            yield from (f"{node.module}.{each.name}" for each in node.names)


def test_what_takes_long_to_import_is_imported_late():
    """tests/late.py stands for it until a test asks."""
    files = [path for path in TESTS.rglob("*.py") if path.relative_to(TESTS).parts[0] not in APART]
    found = {
        f"{path.relative_to(TESTS)}: {name}"
        for path in files
        for name in imported(path)
        if any(f"{name}.".startswith(f"{slow}.") for slow in SLOW)
    }
    assert set() == found
