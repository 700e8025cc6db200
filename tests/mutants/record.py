"""A plugin of pytest: writes down which tests run each line of the parts that are mutated, and how long each test takes.

`pytest -p record` with this folder on PYTHONPATH. WEFT_RECORD names the files that it writes.
"""

import json
import os
from collections import Counter
from pathlib import Path

import coverage
import pytest

from parts import FOLDERS

_PATH = Path(os.environ["WEFT_RECORD"])
_seconds = Counter()
# They tell nothing of mutants.
_failed = set()
_coverage = coverage.Coverage(
    config_file=False, data_file=str(_PATH), source=[str(folder) for folder in FOLDERS.values()], messages=False
)


def test_of(nodeid):
    """The test function of a parametrized test."""
    return nodeid.partition("[")[0]


def pytest_configure():
    """Begin before the first test is collected, so that a line that runs at import has the context ''."""
    _coverage.start()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item):
    """What runs now belongs to this test, in whatever thread."""
    _coverage.switch_context(test_of(item.nodeid))
    return (yield)


def pytest_runtest_logreport(report):
    """Add the time of a test's own run, and of its fixtures."""
    _seconds[test_of(report.nodeid)] += report.duration
    if report.failed:
        _failed.add(test_of(report.nodeid))


def pytest_unconfigure():
    """Write both files."""
    _coverage.stop()
    _coverage.save()
    seconds = {test: spent for test, spent in _seconds.items() if test not in _failed}
    _PATH.with_suffix(".json").write_text(json.dumps(seconds, indent=0))
