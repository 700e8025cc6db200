"""The pages can be read in an editor, their links lead somewhere, and the commands that they name exist."""

import re
import subprocess
from itertools import chain
from pathlib import Path

import pytest

import benchmarks_page
from weft_command import running

ROOT = Path(__file__).parents[2]
PAGES = [
    ROOT / "README.md",
    ROOT / "CONTRIBUTING.md",
    *(ROOT / folder / "README.md" for folder in ("client", "deploy", "export", "server")),
    *sorted((ROOT / "docs").glob("*.md")),
]
WRAPPED = [
    ROOT / "CHANGELOG.md",
    ROOT / "SECURITY.md",
    *(page for page in PAGES if page.name != "log-of-speed.md"),
    ROOT / "docs/benchmarks/README.md",
    *sorted((ROOT / "docs/decisions").glob("*.md")),
]
LINKED = sorted(set(WRAPPED) | set(PAGES))
FENCED = re.compile(r"^```.*?^```", re.DOTALL | re.MULTILINE)
LINK = re.compile(r"\]\(([^)\s]+)\)|^\[[^\]]+\]: (\S+)$", re.MULTILINE)
CODE = re.compile(r"```.*?```|`[^`\n]+`", re.DOTALL)


def anchors(page):
    """What a link can name in a page: its headings, as GitHub makes them lower case and drops punctuation."""
    headings = re.findall(r"^#+ (.*)$", FENCED.sub("", page.read_text()), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


def leads_somewhere(page, link):
    """Whether a relative link of a page has a target."""
    path, _, anchor = link.partition("#")
    target = page.parent / path if path else page
    return target.exists() and (not anchor or anchor in anchors(target))


def typed(program):
    """The first word after `program` wherever a page's code begins a command with it."""
    code = "\n".join(block.strip("`") for page in PAGES for block in CODE.findall(page.read_text()))
    return sorted(set(re.findall(rf"^(?:\$ )?(?:\.venv/bin/)?{program} ([a-z][a-z-]*)", code, re.MULTILINE)))


def test_the_pages_name_commands():
    """The patterns above find something, so the tests below mean something."""
    assert {"demo", "test", "serve"} <= set(typed("make"))
    assert {"translate", "serve"} <= set(typed("weft"))


def test_a_page_can_be_read_in_an_editor():
    """No line of prose or code is over 120 characters; a row of a table is one line, however long."""
    lines = [
        (page.name, number, line) for page in WRAPPED for number, line in enumerate(page.read_text().splitlines(), 1)
    ]

    assert [] == [(page, number) for page, number, line in lines if len(line) > 120 and not line.startswith("|")]


def test_the_front_page_is_short():
    """Who meets Weft reads it to the end."""
    assert 150 > len((ROOT / "README.md").read_text().splitlines())


def test_links_lead_somewhere():
    """A link to another page of ours names a file that is there, and a heading that is in it."""
    found = [(page, link) for page in LINKED for link in chain(*LINK.findall(FENCED.sub("", page.read_text())))]
    ours = [(page, link) for page, link in found if link and "://" not in link]

    assert len(ours) > 100
    assert [] == [(page.name, link) for page, link in ours if not leads_somewhere(page, link)]


def test_the_list_of_decisions_names_each_page():
    """docs/decisions/README.md has a line for each page beside it."""
    folder = ROOT / "docs/decisions"
    listed = re.findall(r"^- \[.*?\]\((.*?\.md)\): ", (folder / "README.md").read_text(), re.MULTILINE)

    assert sorted(path.name for path in folder.glob("*.md") if path.name != "README.md") == sorted(listed)


def test_a_make_command_is_a_target():
    """`make` knows each target and explains it."""
    listed = subprocess.run(["make", "help"], cwd=ROOT, check=True, capture_output=True, text=True).stdout

    assert [] == sorted({*typed("make")} - {*re.findall(r"^  make (\S+) ", listed, re.MULTILINE)})


@pytest.mark.parametrize("command", typed("weft"))
def test_a_weft_command_exists(command, capsys):
    """`weft COMMAND --help` explains itself."""
    assert 0 == running.run([command, "--help"])
    assert "Usage" in capsys.readouterr().out


def test_the_page_of_benchmarks_says_what_its_files_say():
    """`python tests/benchmarks_page.py` makes its table of their heads. Of each theme and machine the last is in it."""
    assert benchmarks_page.page() == benchmarks_page.PAGE.read_text("utf-8")
    dated = re.compile(r"(\w+?_[\w-]+)_(\d{4}-\d{2}-\d{2})")
    newest = {}
    for path in benchmarks_page.FOLDER.glob("*_*.md"):
        theme, day = dated.match(path.name).groups()
        newest[theme] = max(newest.get(theme, ""), day)
    assert all(day < newest[theme] for theme, day in (dated.match(name).groups() for name in benchmarks_page.OLDER))
