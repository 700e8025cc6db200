"""What each `--help` shows first: one example, on a line of its own."""

import re
import shlex

import pytest
import typer

from weft.cli import app
from weft_command.plugins import PLUGINS, loaded

OWN = typer.main.get_command(app).commands
CHANGES = OWN["models"].commands
NAMES = [[], *([name] for name in (*OWN, *PLUGINS)), *(["models", name] for name in CHANGES)]


def command_of(names):
    """What stands behind some words."""
    first, *more = names
    command = OWN.get(first) or loaded(first)
    return command.commands[more[0]] if more else command


@pytest.mark.parametrize("names", NAMES, ids=" ".join)
def test_each_help_shows_an_example_that_its_flags_take(weft_command, monkeypatch, names):
    """Before its arguments, whole on a narrow screen, and as it is typed: its own parser takes it."""
    monkeypatch.setenv("COLUMNS", "72")
    whole = weft_command(*names, "--help")[1]
    said = whole.partition("\nArguments:")[0].partition("\nOptions:")[0]
    (example,) = re.findall(r"^  For example: (weft .*)$", said, re.MULTILINE)
    typed = shlex.split(example)[1:]

    assert " object at 0x" not in whole
    assert names == typed[: len(names)]
    names = names or typed[:1]
    assert command_of(names).make_context("weft", typed[len(names) :])
