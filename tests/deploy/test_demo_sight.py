"""`make demo-sight`, as a newcomer types it."""

import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


@pytest.mark.long
def test_it_says_what_photographs_show_and_draws_where_it_looked():
    """Each command that is shown has its answer, and its picture is there."""
    folder = ROOT / "build" / "demo"
    for old in folder.glob("sight-*.png"):
        old.unlink()
    done = subprocess.run(["make", "demo-sight"], cwd=ROOT, check=False, capture_output=True, text=True)

    assert 0 == done.returncode, done.stderr
    blocks = [block.splitlines() for block in done.stdout.split("\n\n")]
    answers = [block[1] for block in blocks if block and block[0].startswith("$ weft ")]
    assert ["four", "a small yellow star inside a large green square"] == answers[:2]
    assert "a small yellow star to the left of a small orange cross" == answers[2]
    shown = {path.name for path in (ROOT / "export/checkpoints/scenes-chat/examples").glob("*.png")}
    assert {f"sight-{name}" for name in shown} == {path.name for path in folder.glob("sight-*.png")}
