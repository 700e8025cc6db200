"""`make fuzz`: runs the tests of this folder with random inputs for some minutes, each file in turn.

    python tests/fuzz/run.py MINUTES [NAME...]

Inputs that fail are kept in .hypothesis/fuzz, and tried first in the next run. What pytest says of a failure has a line
`@reproduce_failure(...)`: put above the test, it makes it fail again. The exit code is 1 if any test failed.
"""

import os
import re
import subprocess
import sys
import time
from pathlib import Path

FOLDER = Path(__file__).parent
# How many times more examples a test tries at a time than in CI.
FACTOR = 10
_PASSED = re.compile(r"(\d+) passing")


def fuzz(path: Path, left_s: float) -> tuple[str, int]:
    """Run one file once. Returns how it ended, and how many inputs were tried."""
    seed = int.from_bytes(os.urandom(4), "little")
    options = ["-q", "-m", "", f"--hypothesis-seed={seed}", "--hypothesis-show-statistics", "-p", "no:cacheprovider"]
    command = [sys.executable, "-m", "pytest", *options, str(path)]
    environment = os.environ | {"FUZZ_FACTOR": str(FACTOR), "RUST_BACKTRACE": "0"}
    with subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as run:
        try:
            said, _ = run.communicate(timeout=left_s)
        except subprocess.TimeoutExpired:
            run.kill()
            return "time is up", 0
    if run.returncode:
        print(f"{said}\nThe seed was {seed}.", flush=True)
    return "failed" if run.returncode else "passed", sum(map(int, _PASSED.findall(said)))


def main(minutes: float, names: list[str]) -> int:
    """Go round the files until the time is up. Returns the exit code."""
    files = [path for path in sorted(FOLDER.glob("test_*.py")) if not names or path.stem[5:] in names]
    end = time.monotonic() + 60 * minutes
    tried, failed = dict.fromkeys(files, 0), set()
    while time.monotonic() < end:
        for path in files:
            how, count = fuzz(path, max(1.0, end - time.monotonic()))
            tried[path] += count
            if how == "failed":
                failed.add(path)
            if how != "time is up":
                print(f"{path.stem[5:]}: {how}, {count} inputs", flush=True)
            if time.monotonic() >= end:
                break
    total = ", ".join(f"{path.stem[5:]} {count}" for path, count in tried.items())
    print(
        f"{minutes:g} minutes, inputs tried: {total}; failed: {', '.join(path.stem[5:] for path in failed) or 'none'}"
    )
    return int(bool(failed))


if __name__ == "__main__":
    sys.exit(main(float(sys.argv[1]), sys.argv[2:]))
