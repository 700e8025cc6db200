"""Which lines of the product each file of tests runs, as coverage.py saw it. What was seen once is kept."""

import hashlib
import json
from pathlib import Path

from parts import ROOT, tests_of


class Ran:
    """Records, which are kept below a folder.

    `watched` runs a file of tests, and gives its lines by file of the product. Paths are relative.
    """

    def __init__(self, folder: Path, watched) -> None:
        self._folder = folder
        self._watched = watched
        self._records: dict[str, dict] = {}
        folder.mkdir(parents=True, exist_ok=True)

    def look(self, paths: set[str]) -> None:
        """See what may be asked of these files, where it was not seen yet, or it or one of them was another then."""
        now = {path: _digest(path) for path in paths}
        tests = sorted({test for path in paths for test in tests_of(path)})
        for number, test in enumerate(tests, 1):
            self._records[test] = record = self._read(test)
            of = now | {test: _digest(test)}
            if not record or any(record["of"].get(path) not in {None, digest} for path, digest in of.items()):
                print(f"{number:4} of {len(tests)}: what does {test} run?", flush=True)
                lines = self._watched(test)
                self._records[test] = {"lines": lines, "of": {path: _digest(path) for path in [test, *lines]}}
                self._file(test).write_text(json.dumps(self._records[test]))

    def lines(self, test: str, path: str) -> list[int]:
        """What a file of tests runs of a file of the product, also when it imports it."""
        return self._records[test]["lines"].get(path, [])

    def size(self, test: str) -> int:
        """How many lines of the product it runs."""
        return sum(map(len, self._records[test]["lines"].values()))

    def _file(self, test):
        return self._folder / f"{test.replace('/', '.')}.json"

    def _read(self, test):
        return json.loads(self._file(test).read_text()) if self._file(test).exists() else {}


def _digest(path):
    return hashlib.sha256((ROOT / path).read_bytes()).hexdigest()
