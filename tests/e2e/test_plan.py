"""`weft plan` as a process: it serves a bundle itself, and what it says of a load follows from what it measured."""

import json
import shutil
import signal
import subprocess
import sys
import time
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
    """There are enough for each to be at most 80 % busy, and what one takes of the memory is told."""
    code, said, _ = plan(str(demo_repository / model / "1"), "--rate", "20000", *lengths, *QUICK)
    most = max(level["per_s"] for level in said["levels"])

    assert (0, [1, 2]) == (code, [level["in_flight"] for level in said["levels"]])
    assert most == said["most_per_s"]
    assert said["replicas"] >= 20000 / (0.8 * most)
    assert pytest.approx(20000 / said["replicas"] / most) == said["busy"]
    assert (model == "topics") == (said["ttft_p95_s"] is None)
    assert 0 < said["mean_s"] < said["e2e_p95_s"] * 2
    assert said["memory_bytes"] is None or said["memory_bytes"] > 50e6


def test_what_no_replica_can_do_is_said(demo_repository):
    """A bound that a lone request misses needs no more replicas: the exit code is 1, for programs too."""
    argv = [str(demo_repository / "en-es" / "1"), "--rate", "1", "--output", "20", "--slo-ttft", "0.00001"]
    for_people, for_programs = plan(*argv, *QUICK[:-1]), plan(*argv, *QUICK)

    assert [1, 1] == [for_people[0], for_programs[0]]
    assert "no number of replicas is enough" in for_people[1]
    assert for_programs[1]["replicas"] is None


def test_a_bundle_that_is_refused_says_why(demo_repository, tmp_path):
    """The server's own word, at once, and the exit code of what is no wrong usage."""
    bundle = tmp_path / "bundle"
    shutil.copytree(demo_repository / "topics" / "1", bundle)
    manifest = bundle / "bundle.json"
    manifest.write_text(manifest.read_text().replace('"precision": "PRECISION_FP32"', '"precision": 0'))
    code, said, errors = plan(str(bundle), "--rate", "1", *QUICK)

    assert (1, "") == (code, said)
    assert "the server refuses the bundle: " in errors


def test_what_ends_the_command_ends_its_server(demo_repository):
    """By SIGTERM, as from `timeout` or a container that stops: no server stays, and no folder of it."""
    command = [WEFT, "plan", str(demo_repository / "topics" / "1"), "--rate", "1", *QUICK]
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as process:
        children = Path(f"/proc/{process.pid}/task/{process.pid}/children")
        while not children.read_text():
            assert process.poll() is None
            time.sleep(0.01)
        (child,) = children.read_text().split()
        arguments = Path(f"/proc/{child}/cmdline")
        while b"weft_server" not in arguments.read_bytes():
            assert process.poll() is None
            time.sleep(0.01)
        repository = Path(arguments.read_bytes().split(b"\0")[3].decode())
        process.terminate()
        assert 128 + signal.SIGTERM == process.wait(90)
    assert not arguments.exists()
    assert not repository.exists()
