"""Whom to ask of a mutant: the tests that run its line, the quickest first."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import coverage
from parts import PACKAGES, TESTS

# Seconds that the tests of one mutant take together. One is asked in any case.
_MOST_S = 40.0


class Who:
    """Which tests run which line: recorded in a copy of the checkout, and for that copy only."""

    def __init__(self, record, tree, *, anew, more=()):
        """`more` are files of tests that are new since the record, and recorded now."""
        if anew:
            shutil.rmtree(record, ignore_errors=True)
        runs = TESTS if anew or not record.exists() else ()
        record.mkdir(parents=True, exist_ok=True)
        for tests in (*runs, *([more] if more else [])):
            _record(record / f"{len(list(record.iterdir()))}.coverage", tree, tests)
        self._tree = tree
        self._seconds = {}
        self._data = coverage.CoverageData(no_disk=True)
        for path in sorted(record.glob("*.coverage")):
            one = coverage.CoverageData(str(path))
            one.read()
            self._data.update(one)
            self._seconds |= json.loads(path.with_suffix(".json").read_text())

    def run(self, mutant):
        """The tests that run a mutant's line."""
        lines = self._data.contexts_by_lineno(str(self._tree / mutant.path))
        tests = {test for line in mutant.mutation.lines for test in lines.get(line, ()) if test in self._seconds}
        chosen, total = [], 0.0
        for test in sorted(tests, key=lambda test: (self._seconds[test], test)):
            total += self._seconds[test]
            if chosen and total > _MOST_S:
                break
            chosen.append(test)
        return chosen


def _record(path, tree, tests):
    """Run some tests. One that fails tells nothing of mutants, and is not asked."""
    folders = [tree / "tests" / "mutants", *(tree / name for name in PACKAGES), Path(coverage.__file__).parents[1]]
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(map(str, folders)), "WEFT_RECORD": str(path)}
    options = ["-q", "-p", "record", "-p", "no:cacheprovider", "-m", "not slow and not e2e and not long and not gpu"]
    subprocess.run([sys.executable, "-m", "pytest", *options, *tests], cwd=tree, env=environment, check=False)
