"""The commands that the pages tell a newcomer to type exist."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", ROOT / "deploy/README.md", *sorted((ROOT / "docs").glob("*.md"))]
WRAPPED = [
    ROOT / "CHANGELOG.md",
    *(page for page in PAGES if page.name != "log-of-speed.md"),
    ROOT / "docs/benchmarks/README.md",
    *sorted((ROOT / "docs/decisions").glob("*.md")),
    ROOT / "server/README.md",
]
CODE = re.compile(r"```.*?```|`[^`\n]+`", re.DOTALL)


def typed(program):
    """The first word after `program` wherever a page's code begins a command with it."""
    code = "\n".join(block.strip("`") for page in PAGES for block in CODE.findall(page.read_text()))
    return sorted(set(re.findall(rf"^(?:\$ )?(?:\.venv/bin/)?{program} ([a-z][a-z-]*)", code, re.MULTILINE)))


def test_the_pages_name_commands():
    """The patterns above find something, so the tests below mean something."""
    assert {"demo", "test", "serve"} <= set(typed("make"))
    assert {"translate", "serve"} <= set(typed("weft"))


@pytest.mark.parametrize("page", WRAPPED, ids=lambda page: page.relative_to(ROOT).as_posix())
def test_a_page_can_be_read_in_an_editor(page):
    """No line of prose or code is over 120 characters; a row of a table is one line, however long."""
    lines = enumerate(page.read_text().splitlines(), 1)

    assert [] == [number for number, line in lines if len(line) > 120 and not line.startswith("|")]


def test_the_list_of_decisions_names_each_page():
    """docs/decisions/README.md has a line for each page beside it."""
    folder = ROOT / "docs/decisions"
    listed = re.findall(r"^- \[.*?\]\((.*?\.md)\): ", (folder / "README.md").read_text(), re.MULTILINE)

    assert sorted(path.name for path in folder.glob("*.md") if path.name != "README.md") == sorted(listed)


@pytest.mark.parametrize("target", typed("make"))
def test_a_make_command_is_a_target(target):
    """`make` knows the target and explains it."""
    listed = subprocess.run(["make", "help"], cwd=ROOT, check=True, capture_output=True, text=True).stdout

    assert re.search(rf"^  make {target} ", listed, re.MULTILINE)


@pytest.mark.parametrize("command", typed("weft"))
def test_a_weft_command_exists(command):
    """`weft COMMAND --help` explains itself."""
    weft = Path(sys.executable).with_name("weft")
    answer = subprocess.run([weft, command, "--help"], check=False, capture_output=True, text=True)

    assert 0 == answer.returncode, answer.stderr
