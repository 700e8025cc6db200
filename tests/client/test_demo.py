"""The demo's table: one request of each kind, its answer and its times, and the picture."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from weft._demo import _said


@pytest.fixture
def run_demo(server, tmp_path):
    """Run the module as `make demo` does; returns what the process did."""

    def run(checkpoints, columns=80):
        argv = ["--target", server.target, "--checkpoints", checkpoints, "--out", tmp_path / "out"]
        command = [sys.executable, "-m", "weft._demo", *argv]
        environment = os.environ | {"COLUMNS": str(columns)}
        return subprocess.run(command, check=False, capture_output=True, text=True, env=environment)

    return run


@pytest.fixture
def checkpoints(tmp_path):
    """A folder with examples, of five bytes each."""
    examples = ("scenes/b.png", "scenes/a.png", "scenes-answers/c.png", "commands/stop.wav", "digits/7.png")
    for name in examples:
        path = tmp_path / Path(name).parent / "examples" / Path(name).name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(b"12345")
    return tmp_path


def test_the_table_has_a_request_of_each_kind(run_demo, server, checkpoints, tmp_path):
    """Eight requests are sent, eight answers stand in the table, and the attention picture is there."""
    done = run_demo(checkpoints)

    assert (0, "") == (done.returncode, done.stderr)
    asked = ["Translate", "Caption", "Answer", "Transcribe", "Classify", "Classify", "Tag", "Generate"]
    assert asked == [seen.method for seen in server.servicer.seen]
    for word in (
        "we are eating bread",
        "bread eating are we",
        "a.png",
        "a picture of a 5 bytes",
        "c.png",
        "stop.wav",
        "7.png",
        "image (75.0%)",
        "Maria: NAME",
    ):
        assert word in done.stdout
    assert (tmp_path / "out" / "alignment.png").read_bytes().startswith(b"\x89PNG")


def test_a_narrow_screen_loses_nothing(run_demo, checkpoints):
    """At 50 columns each line fits, no name or number is cut, and each column of times is explained below the table."""
    shown = run_demo(checkpoints, columns=50).stdout

    assert not [line for line in shown.splitlines() if len(line.rstrip()) > 50]
    assert "\N{HORIZONTAL ELLIPSIS}" not in shown
    for column in ("queue", "prefill", "decode", "round trip"):
        assert f"\n{column}: " in shown


def test_without_examples_the_demo_says_so(run_demo, server, tmp_path):
    """A folder without examples is one line on stderr, exit code 1, and nothing is sent."""
    done = run_demo(tmp_path)

    assert (1, "") == (done.returncode, done.stdout)
    assert done.stderr.startswith("weft: no example in ")
    assert 1 == done.stderr.count("\n")
    assert [] == server.servicer.seen


@pytest.mark.parametrize(
    ("ask", "said"),
    [
        (lambda client: client.translate("a b"), "b a"),
        (lambda client: client.classify("a b"), "("),
        (lambda client: client.tag("Maria"), "Maria: NAME"),
    ],
)
def test_each_kind_of_answer_has_its_words(client, ask, said):
    """A text as it is, the best label with its score, and each span with its label."""
    assert said in _said(ask(client))
