"""Whom to ask of a mutant: the tests that run its line, the quickest first."""

import json
import os
import subprocess
import sys
from pathlib import Path

import coverage

from draw import Mutant
from parts import PACKAGES, TESTS

# Seconds that the tests of one mutant take together, as far as the first one does not take longer.
_MOST_S = 40.0


class Who:
    """Which tests run which line. Recorded in a copy of the checkout, and for that copy only."""

    def __init__(self, record: Path, tree: Path, *, anew: bool) -> None:
        if anew or not record.exists():
            _record(record, tree)
        self._tree = tree
        self._seconds = {}
        self._tests: dict[str, dict[int, list[str]]] = {}
        data = coverage.CoverageData()
        for path in sorted(record.glob("*.coverage")):
            one = coverage.CoverageData(str(path))
            one.read()
            data.update(one)
            self._seconds.update(json.loads(path.with_suffix(".json").read_text()))
        for path in data.measured_files():
            self._tests[path] = data.contexts_by_lineno(path)

    def run(self, mutant: Mutant) -> list[str]:
        """The tests that run a mutant's line."""
        lines = self._tests.get(str(self._tree / mutant.path), {})
        among = range(mutant.mutation.first_line, mutant.mutation.last_line + 1)
        tests = {test for line in among for test in lines.get(line, ()) if test in self._seconds}
        chosen, total = [], 0.0
        for test in sorted(tests, key=lambda test: (self._seconds[test], test)):
            total += self._seconds[test]
            if chosen and total > _MOST_S:
                break
            chosen.append(test)
        return chosen


def _record(record: Path, tree: Path) -> None:
    """Run the tests of the parts once, a folder at a time."""
    record.mkdir(parents=True, exist_ok=True)
    for index, tests in enumerate(TESTS):
        environment = os.environ | {
            "PYTHONPATH": os.pathsep.join([str(tree / "tests" / "mutants"), *(str(tree / name) for name in PACKAGES)]),
            "WEFT_RECORD": str(record / f"{index}.coverage"),
        }
        options = ["-q", "-p", "record", "-p", "no:cacheprovider", "-m", "not slow and not e2e and not long and not gpu"]
        # A test that fails tells nothing of mutants, and is told here.
        subprocess.run([sys.executable, "-m", "pytest", *options, *tests], cwd=tree, env=environment, check=False)

