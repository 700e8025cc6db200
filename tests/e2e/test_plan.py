"""`weft plan` as a process: it serves a bundle itself, and what it says of a load follows from what it measured."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.e2e
WEFT = Path(sys.executable).with_name("weft")
QUICK = ["--slots", "2", "--seconds", "0.3", "--json"]


def plan(*argv):
    """Run the command; its exit code, what it said, and its errors."""
    answer = subprocess.run([WEFT, "plan", *argv], check=False, capture_output=True, text=True, timeout=120)
    said = json.loads(answer.stdout) if answer.stdout.startswith("{") else answer.stdout
    return answer.returncode, said, answer.stderr


@pytest.mark.parametrize(("model", "lengths"), [("en-es", ["--input", "8", "--output", "4..8"]), ("topics", [])])
def test_as_many_replicas_as_the_load_needs(demo_repository, model, lengths):
    """A hundred times what one server can do needs 125 of them at 80 %, each as busy as that, with its memory."""
    code, said, _ = plan(str(demo_repository / model / "1"), "--rate", "20000", *lengths, *QUICK)
    most = max(level["per_s"] for level in said["levels"])

    assert (0, [1, 2]) == (code, [level["callers"] for level in said["levels"]])
    assert most == said["most_per_s"]
    assert said["replicas"] >= 20000 / (0.8 * most)
    assert pytest.approx(20000 / said["replicas"] / most) == said["busy"]
    assert (model == "topics") == (said["ttft_p95_s"] is None)
    assert 0 < said["mean_s"] < said["e2e_p95_s"] * 2
    assert said["memory_bytes"] is None or said["memory_bytes"] > 50e6


def test_what_no_replica_can_do_is_said(demo_repository):
    """A bound that a lone request misses needs no more replicas: the exit code is 1."""
    argv = [str(demo_repository / "en-es" / "1"), "--rate", "1", "--output", "20", "--slo-ttft", "0.00001"]
    code, said, _ = plan(*argv, *QUICK[:-1])

    assert 1 == code
    assert "no number of replicas is enough" in said


@pytest.mark.parametrize(
    ("argv", "said"),
    [
        (["nowhere", "--rate", "1"], "BUNDLE: 'nowhere' holds no bundle.json"),
        (["nowhere", "--rate", "0"], "--rate: must be more than 0"),
        (["nowhere", "--rate", "1", "--slo-ttft", "-1"], "--slo-ttft: must be a number of seconds, more than 0"),
    ],
)
def test_what_is_wrong_is_said_before_a_server_starts(argv, said):
    """Each names its option or argument."""
    code, _, errors = plan(*argv)

    assert code != 0
    assert said in errors
