"""The whole of `make soak`, for half a minute."""

import subprocess
import sys
from pathlib import Path

import pytest


@pytest.mark.e2e
@pytest.mark.long
def test_a_short_soak_keeps_its_promises(demo_repository):
    """The leaking control is caught, and the server passes."""
    command = [sys.executable, str(Path(__file__).parent / "run.py"), "0.5", "--rate", "20"]
    run = subprocess.run(command, check=False, capture_output=True, text=True)

    assert "The leaking control was caught." in run.stdout
    assert 0 == run.returncode, run.stdout + run.stderr
