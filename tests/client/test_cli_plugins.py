"""Subcommands that other packages bring."""

import subprocess
import sys
import tomllib
from importlib.metadata import EntryPoint
from pathlib import Path

import pytest

from weft_command import plugins

ROOT = Path(__file__).parents[2]


def plugin(monkeypatch, tmp_path, source):
    """Make `weft serve` come from a module with this source."""
    (tmp_path / "plugged.py").write_text(source)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "plugged", raising=False)
    entry = EntryPoint("serve", "plugged:app", "weft.commands")
    run = plugins._plugin(entry)
    info = next(each for each in plugins.app.registered_commands if each.name == "serve")
    monkeypatch.setattr(info, "callback", run)


def test_a_subcommand_of_another_package_gets_its_arguments(weft_command, monkeypatch, tmp_path):
    """Arguments, options and --help belong to the plugged-in command; its exit code is ours."""
    source = """
import typer
app = typer.Typer()

@app.command()
def serve(name: str, port: int = typer.Option(1, "--port", "-p", help="A door.")):
    print(name, port)
    raise typer.Exit(3)
"""
    plugin(monkeypatch, tmp_path, source)

    assert (3, "x 5\n", "") == weft_command("serve", "x", "-p", "5")
    assert "A door." in weft_command("serve", "--help")[1]
    assert 2 == weft_command("serve")[0]


def test_a_missing_extra_is_named(weft_command, monkeypatch, tmp_path):
    """A subcommand whose extra is not installed says which one to install."""
    plugin(monkeypatch, tmp_path, "import no_such_runtime")
    code, out, error = weft_command("serve")

    assert (1, "") == (code, out)
    assert "no_such_runtime" in error
    assert "pip install 'weft-serving[server]', or in a clone: pip install '.[server]'" in error


@pytest.mark.parametrize(
    ("source", "why"),
    [
        ("1 / 0", "ZeroDivisionError: division by zero"),
        ("import sys; sys.exit('no')", "SystemExit: no"),
        ("import weft.no_such_module", "ModuleNotFoundError: No module named 'weft.no_such_module'"),
        ("", "AttributeError: module 'plugged' has no attribute 'app'"),
        ("app = 3", "AttributeError: "),
    ],
)
def test_a_plugin_that_is_broken_is_told_by_its_package(source, why, weft_command, monkeypatch, tmp_path):
    """Its bug is not said to be ours."""
    plugin(monkeypatch, tmp_path, source)
    code, out, error = weft_command("serve")

    assert (1, "") == (code, out)
    assert error.startswith(f"weft: `weft serve` of the package plugged cannot be loaded: {why}"), error
    assert "This is a bug" not in error


def test_each_plugged_in_subcommand_says_what_it_is():
    """The list of all subcommands has a sentence for each one, and knows its extra."""
    declared = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["entry-points"]["weft.commands"]
    assert set(declared) == set(plugins.PLUGINS)


# What a help and a refusal need not: each takes about as long to import as all that they do need.
HEAVY = {"weft", "grpc", "numpy", "torch", "onnx", "onnxruntime", "transformers", "huggingface_hub", "sklearn"}
# Bench is left out: it is a client.
HELPS = [[name, "--help"] for name in ("serve", "doctor", "export", "export-adapter", "up", "wrap", "train")]
REFUSED = ["serve --prot 3", "up nowhere", "export a b c", "export nowhere m/1", "wrap nowhere m/1", "train nothing"]


def test_a_help_or_a_refusal_waits_for_no_library():
    """Of a subcommand of another package, its own package is imported, and neither the client nor what is heavy."""
    lines = [*HELPS, *(line.split() for line in REFUSED)]
    program = f"import sys; from weft_command.running import run; codes = [run(argv) for argv in {lines!r}]\n"
    program += "print(codes, *sys.modules, sep=chr(10))"
    told = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True).stdout

    codes, *modules = told[told.rindex("[0, ") :].splitlines()
    assert str([0] * len(HELPS) + [2, 1, 2, 1, 1, 1]) == codes
    assert set() == HEAVY & {name.partition(".")[0] for name in modules}
