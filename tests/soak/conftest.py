"""Lets the tests of this folder find its modules, as a script there does."""

import sys
from pathlib import Path

TESTS = Path(__file__).parents[1]
sys.path[:0] = [str(TESTS / name) for name in ("soak", "bench")]
