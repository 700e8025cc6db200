"""The Makefile does what is due, and nothing that is done."""

import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SOURCES = [
    "pyproject.toml",
    "constraints.txt",
    "proto/weft_proto/v1/bundle.proto",
    "proto/weft_proto/bundle_rules.py",
    "proto/weft_proto/chat/names.py",
    "export/weft_export/export.py",
    "export/weft_export/graphs/graphs.py",
    "export/weft_export/families/vit.py",
    "export/weft_recipes/digits.py",
    "export/checkpoints/digits/config.json",
    "export/checkpoints/digits/model.safetensors",
    "export/checkpoints/topics/config.json",
]
MADE = [".venv/.installed", "build/models/digits/1/bundle.json", "build/models/topics/1/bundle.json"]


@pytest.fixture
def workshop(tmp_path):
    """A tree in which everything was made after its sources; the files are empty, for make reads their times alone."""
    shutil.copy(ROOT / "Makefile", tmp_path)
    for age, names in ((2000, SOURCES), (1000, [MADE[0]]), (500, MADE[1:])):
        for name in names:
            path = tmp_path / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.touch()
            os.utime(path, (path.stat().st_mtime - age,) * 2)
    return tmp_path


def due(workshop, *, changed=()):
    """What `make models` (its target `bundles`) would export if the files had just changed, and whether it installs."""
    options = [part for name in changed for part in ("-W", name)]
    command = ["make", "--no-print-directory", "-n", *options, "bundles"]
    plan = subprocess.run(command, cwd=workshop, check=True, capture_output=True, text=True).stdout
    return set(re.findall(r"weft export --force export/checkpoints/(\w+) ", plan)), "pip" in plan


def test_nothing_is_made_twice(workshop):
    """With everything newer than its sources, nothing is due."""
    assert (set(), False) == due(workshop)


@pytest.mark.parametrize("name", ["config.json", "model.safetensors"])
def test_a_changed_checkpoint_is_exported_alone(workshop, name):
    """Any file of a checkpoint makes its own bundle due, and no other."""
    assert ({"digits"}, False) == due(workshop, changed=[f"export/checkpoints/digits/{name}"])


@pytest.mark.parametrize(
    "name",
    [
        "export/weft_export/export.py",
        "export/weft_export/graphs/graphs.py",
        "export/weft_export/families/vit.py",
        "proto/weft_proto/bundle_rules.py",
        "proto/weft_proto/chat/names.py",
        "proto/weft_proto/v1/bundle.proto",
    ],
)
def test_a_changed_exporter_makes_every_bundle_due(workshop, name):
    """A bundle is made of the exporter's code, and of the manifest's definition and rules too."""
    assert ({"digits", "topics"}, False) == due(workshop, changed=[name])


def test_a_changed_recipe_exports_nothing(workshop):
    """A recipe makes checkpoints, and its checkpoint has not changed."""
    assert (set(), False) == due(workshop, changed=["export/weft_recipes/digits.py"])


@pytest.mark.parametrize("name", ["pyproject.toml", "constraints.txt"])
def test_changed_dependencies_are_installed(workshop, name):
    """A requirement or a pin that changed makes the install due, and no export."""
    assert (set(), True) == due(workshop, changed=[name])


def test_a_file_with_a_targets_name_stops_nothing(workshop):
    """`make check` does what it says beside a file `check`: make takes no target's name for a file."""
    names = re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE)
    command = ["make", "--no-print-directory", "-n", "-p", "help"]
    rules = subprocess.run(command, cwd=workshop, check=True, capture_output=True, text=True).stdout

    assert len(names) > 50
    assert sorted(names) == sorted(re.search(r"^\.PHONY: (.*)$", rules, re.MULTILINE)[1].split())


def test_the_help_fits_a_terminal():
    """Each target's line fits 80 columns."""
    shown = subprocess.run(["make", "help"], cwd=ROOT, check=True, capture_output=True, text=True).stdout

    assert "  make demo " in shown
    assert [] == [line for line in shown.splitlines() if len(line) > 80]


def test_a_test_that_is_long_has_a_target():
    """`make test-all` leaves it out. A target names its file or its folder, and CONTRIBUTING.md names the target."""
    told = (ROOT / "CONTRIBUTING.md").read_text()
    recipes = re.findall(r"^([a-z-]+):.*\n((?:\t.*\n)+)", (ROOT / "Makefile").read_text(), re.MULTILINE)
    asked = {
        path.removesuffix("/run.py")
        for target, recipe in recipes
        if f"`make {target}" in told and (re.search(r'-m "?(long|e2e)', recipe) or "/run.py" in recipe)
        for path in re.findall(r"tests/[\w/.]+", recipe)
    }
    marked = re.compile(r"\bmark\.long\b")
    files = [path for path in (ROOT / "tests").rglob("test_*.py") if marked.search(path.read_text())]
    paths = [path.relative_to(ROOT) for path in files]

    assert len(paths) > 30
    assert [] == [str(path) for path in paths if not {str(each) for each in (path, *path.parents)} & asked]
