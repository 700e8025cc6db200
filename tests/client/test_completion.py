"""A shell completes what is typed: subcommands, and the flags of those that other packages bring."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

BIN = str(Path(sys.executable).parent)
# What bash does when Tab is pressed, with a script that `weft` gives it.
TAB = """
eval "$(_WEFT_COMPLETE=source_bash weft)"
COMP_WORDS=("$@") COMP_CWORD=$(( $# - 1 ))
_weft_completion weft
printf '%s\\n' "${COMPREPLY[@]}"
"""


def completed(*words, **more):
    """What bash offers for the last word of a line, with some more variables."""
    environment = os.environ | {"PATH": f"{BIN}:{os.environ['PATH']}"} | more
    done = subprocess.run(
        ["bash", "-c", TAB, "bash", "weft", *words], env=environment, check=True, capture_output=True, text=True
    )
    assert "" == done.stderr
    return done.stdout.split()


@pytest.mark.parametrize(
    ("words", "offered"),
    [
        (["tra"], ["transcribe", "translate", "train"]),
        (["translate", "--source-l"], ["--source-language"]),
        (["models", "un"], ["unload"]),
        (["export", "--precision", "int8-"], ["int8-weights"]),
        (["serve", "--idle-unload"], ["--idle-unload-s"]),
    ],
)
def test_tab_completes(words, offered):
    """In a real bash."""
    assert sorted(offered) == sorted(completed(*words))


def test_a_package_that_cannot_be_imported_offers_nothing(tmp_path):
    """No error stands in the line that somebody types. Who runs it hears."""
    (tmp_path / "plugged.py").write_text("1 / 0")
    (tmp_path / "plugged-1.dist-info").mkdir()
    (tmp_path / "plugged-1.dist-info" / "METADATA").write_text("Name: plugged\nVersion: 1\n")
    (tmp_path / "plugged-1.dist-info" / "entry_points.txt").write_text("[weft.commands]\nbroken = plugged:app\n")
    assert [] == completed("broken", "--x", PYTHONPATH=str(tmp_path))
    assert ["broken"] == completed("brok", PYTHONPATH=str(tmp_path))


def test_a_shell_learns_it_by_one_command(tmp_path):
    """It is written into the shell's own file."""
    environment = os.environ | {"PATH": f"{BIN}:{os.environ['PATH']}", "HOME": str(tmp_path)}
    subprocess.run(["bash", "-c", "weft --install-completion; true"], env=environment, check=True, capture_output=True)
    assert "weft" in (tmp_path / ".bashrc").read_text()
