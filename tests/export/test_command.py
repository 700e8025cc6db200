"""`weft export` and `weft train` as people meet them: help, lines of progress, signals, and what is never replaced."""

import errno
import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from tiny import save_tiny
from typer import Exit
from typer.testing import CliRunner

from weft_export import console
from weft_export.__main__ import export_app
from weft_export.console import Stopped, plain_errors, shown, stopped_by_signals
from weft_export.errors import ExportError
from weft_export.export import export_checkpoint
from weft_recipes.__main__ import train_app
from weft_recipes.catalogue import ADAPTERS, RECIPES

WEFT = [sys.executable, "-m", "weft_command"]


def help_of(command, columns):
    """Return a command's help as a terminal of that width shows it, without breaks."""
    environment = {**os.environ, "COLUMNS": str(columns), "NO_COLOR": "1"}
    ran = subprocess.run([*WEFT, command, "--help"], env=environment, capture_output=True, text=True, check=True)
    assert columns >= max(map(len, ran.stdout.splitlines()))
    return " ".join(ran.stdout.split())


@pytest.mark.parametrize("columns", [80, 50])
@pytest.mark.parametrize(
    ("command", "parts"),
    [
        (
            "export",
            [
                "checkpoint <path>",
                "bundle <path>",
                "[default: fp32]",
                "[default: (held_out.jsonl of the checkpoint, if any)]",
            ],
        ),
        ("export", ["--held-out <path>", "--force Replace the", "models/en-es/1.", "it costs. [default"]),
        ("train", ["recipe <str>", "out <path>", "[default: (build/checkpoints/RECIPE)]"]),
    ],
)
def test_help_is_whole(command, parts, columns):
    """Rendered help has each type and default, and none for a flag; nothing is taken for markup, and nothing is cut."""
    rendered = help_of(command, columns)
    assert [] == [part for part in parts if part not in rendered]
    assert "…" not in rendered


def test_without_a_terminal_each_stage_is_a_line(tmp_path):
    """Who reads a log sees what an export does and how far it is; stdout has nothing but the result."""
    checkpoint = save_tiny("tiny-text", tmp_path / "checkpoint")
    made = CliRunner().invoke(export_app, [str(checkpoint), str(tmp_path / "topics" / "1")])

    assert 0 == made.exit_code
    expected = ["loading torch", "loading the checkpoint", "this takes about N s, 0.5 GB of memory"]
    expected += ["exporting classifier.onnx", "exporting explain.onnx", "checking parity", "writing the bundle", "done"]
    told = re.sub(r"about \d+ s", "about N s", made.stderr)
    assert expected == re.findall(r"^weft export: (.*?)(?: \(\d+ of \d+\))?, \d+ s$", told, re.MULTILINE)
    assert 1 == len(made.stdout.splitlines())


def test_without_a_terminal_training_says_a_line_now_and_then(monkeypatch, capsys):
    """The first call is a line, and then one for each 15 seconds, however often it is called."""
    clock = iter(range(100))
    monkeypatch.setattr("time.monotonic", lambda: next(clock))
    with shown("train", line_seconds=15) as say:
        for step in range(40):
            say(step, 40, f"loss {step}")

    expected = ["weft train: loss 0 (0 of 40), 1 s", "weft train: loss 15 (15 of 40), 16 s"]
    expected += ["weft train: loss 30 (30 of 40), 31 s"]
    assert expected == capsys.readouterr().err.splitlines()


@pytest.mark.parametrize("name", ["SIGINT", "SIGTERM", "SIGHUP"])
def test_a_stopped_export_leaves_nothing(name, tmp_path):
    """A signal in the middle of an export ends it with the shell's code for it, and the repository is as it was."""
    checkpoint, repository = save_tiny("tiny-rnn", tmp_path / "checkpoint"), tmp_path / "models"
    repository.mkdir()
    command = [*WEFT, "export", str(checkpoint), str(repository / "en-es" / "1")]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True, start_new_session=True) as process:
        for line in process.stderr:
            if "exporting decoder.onnx" in line:
                assert [".weft-export"] == [path.name[:12] for path in repository.iterdir()]
                process.send_signal(getattr(signal, name))
                process.send_signal(signal.SIGTERM)  # a parent passes the signal on: the clean-up goes on
                break
        last = process.stderr.read().splitlines()[-1]

    # Several threads of a process may take two signals that come at once, so either may be the first.
    ends = [(128 + getattr(signal, each), f"weft export: stopped by {each}") for each in (name, "SIGTERM")]
    assert (process.returncode, last) in ends
    assert [] == list(repository.iterdir())


def test_an_ignored_signal_stays_ignored():
    """Under nohup, SIGHUP ends nothing."""
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        with stopped_by_signals():
            os.kill(os.getpid(), signal.SIGHUP)
    finally:
        signal.signal(signal.SIGHUP, before)


def test_a_later_signal_stops_too(monkeypatch):
    """Whoever does not wait for a clean-up that hangs may ask again, after a while; handlers are then as they were."""
    before = signal.getsignal(signal.SIGTERM)
    monkeypatch.setattr(console, "_PATIENCE", 0.0)
    with stopped_by_signals():
        for _ in range(2):
            with pytest.raises(Stopped):
                os.kill(os.getpid(), signal.SIGTERM)
    assert before == signal.getsignal(signal.SIGTERM)


def occupied(place, kind):
    """Put something that is no bundle where a bundle would go."""
    place.parent.mkdir(parents=True)
    if kind == "file":
        place.write_text("mine")
    elif kind == "link":
        (place.parent / "other").mkdir()
        place.symlink_to("other")
    else:
        place.mkdir()
        (place / "thesis.txt").write_text("mine")


@pytest.mark.parametrize(
    ("kind", "complaint"),
    [("file", "is not a directory"), ("link", "is not a directory"), ("directory", "has no bundle.json")],
)
def test_force_replaces_nothing_but_a_bundle(kind, complaint, tmp_path):
    """A file, a link, or a directory that is no bundle is kept, and said to be none, before anything is read."""
    place = tmp_path / "models" / "1"
    occupied(place, kind)
    before = sorted(path.name for path in place.parent.rglob("*"))

    with pytest.raises(ExportError, match=f"{complaint}; --force replaces a bundle or an empty directory"):
        export_checkpoint(tmp_path / "no checkpoint", place, force=True)
    assert before == sorted(path.name for path in place.parent.rglob("*"))


@pytest.mark.parametrize("option", ["--golden", "--description", "--label-text"])
def test_bytes_that_are_no_characters_are_refused(option, tmp_path):
    """A shell passes any bytes on."""
    ran = CliRunner().invoke(export_app, [str(tmp_path), str(tmp_path / "x" / "1"), option, "\udcff"])
    assert (1, f"weft export: {option}: it is not UTF-8") == (ran.exit_code, ran.stderr.splitlines()[-1])


def test_a_file_on_the_way_is_found_at_once(tmp_path):
    """Where a directory of the path is a file, no model is loaded first."""
    (tmp_path / "models").write_text("mine")
    for place in (tmp_path / "models" / "1", tmp_path / "models" / "en-es" / "1"):
        with pytest.raises(ExportError, match=f"cannot write {place}: {tmp_path / 'models'} is not a directory"):
            export_checkpoint(tmp_path / "no checkpoint", place)


def test_an_error_of_the_system_names_its_file(capsys):
    """In words, as other refusals do: a folder that may not be searched is one such."""
    with pytest.raises(Exit), plain_errors("export"):
        raise PermissionError(errno.EACCES, "Permission denied", "/models/bert/onnx")
    assert "weft export: /models/bert/onnx: Permission denied\n" == capsys.readouterr().err


def test_training_never_writes_where_git_looks(tmp_path, monkeypatch):
    """Plain `weft train NAME` writes into build/, which git ignores, and says so."""
    written = []
    monkeypatch.chdir(tmp_path)
    monkeypatch.setitem(RECIPES, "digits", lambda out, _: written.append(out) or {"accuracy": 0.5})
    ran = CliRunner().invoke(train_app, ["digits"])

    assert [Path("build/checkpoints/digits")] == written
    assert "build/checkpoints/digits:\n  accuracy: 0.5\n" == ran.stdout
    ignored = (Path(__file__).parents[2] / ".gitignore").read_text().splitlines()
    assert "/build/" in ignored


@pytest.mark.parametrize(("missing", "recipe"), [("sklearn.datasets", "digits"), ("torch", "en-es")])
def test_training_without_its_extra_names_it(missing, recipe, monkeypatch):
    """What is not installed is said in one sentence, and which extra brings it."""
    for name in [name for name in sys.modules if name.startswith("weft_recipes.") and "catalogue" not in name]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, missing, None)
    ran = CliRunner().invoke(train_app, [recipe])

    remedy = "pip install 'weft-serving[train]', or in a clone: pip install '.[train]'"
    assert (1, "") == (ran.exit_code, ran.stdout)
    assert f"weft train: the module '{missing}' is not installed: {remedy}" == ran.stderr.splitlines()[-1]


def test_an_unknown_recipe_is_answered_with_those_there_are():
    """The name is the user's, so the error is one line."""
    ran = CliRunner().invoke(train_app, ["digit"])

    assert 1 == ran.exit_code
    names = ", ".join(RECIPES | ADAPTERS)
    assert f"weft train: there is no recipe 'digit'; there are {names}" == ran.stderr.splitlines()[-1]
