"""On PyPI the name `weft` belongs to another project: ours is installed as weft-serving, and imported as weft."""

import re
import subprocess
import tomllib
from importlib.metadata import version
from pathlib import Path

import pytest

import weft

ROOT = Path(__file__).parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
TRACKED = subprocess.run(["git", "ls-files"], cwd=ROOT, check=True, capture_output=True, text=True).stdout.split()
# What would install the other project, or look for its version: an extra of it, a plain install, a look-up.
OTHER = re.compile(r"""weft\\*\[[a-z$]|pip install (?:-\S+ )*['"]?weft(?!-serving|_)|version\(['"]weft['"]\)""")


@pytest.mark.parametrize(
    "text",
    [
        "'weft[server]'",
        "weft[${EXTRA}] @ file",
        r"weft\[plot\]",
        "pip install weft",
        "pip install -U 'weft'",
        "version('weft')",
    ],
)
def test_the_pattern_finds_the_other_project(text):
    """The pattern means something."""
    assert OTHER.search(text)


def test_nobody_is_sent_to_the_other_project():
    """No page, message or build file installs `weft`, or asks for an extra of it."""
    pages = {
        name: (ROOT / name).read_bytes().decode(errors="ignore")
        for name in TRACKED
        if Path(name) != Path(__file__).relative_to(ROOT)
    }

    assert [] == [f"{name}: {found.group()}" for name, text in pages.items() for found in OTHER.finditer(text)]


def test_the_distribution_is_weft_serving():
    """Its name is free on PyPI; the module and the command stay `weft`, with the distribution's version."""
    assert "weft-serving" == PROJECT["name"]
    assert {"weft"} == set(PROJECT["scripts"])
    assert PROJECT["version"] == weft.__version__ == version("weft-serving")
