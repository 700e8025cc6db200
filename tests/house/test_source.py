"""The shape of the source: small files, one noun each, one word per thing."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PACKAGES = [
    "client/weft",
    "client/weft_bench",
    "client/weft_command",
    "server/weft_server",
    "export/weft_export",
    "export/weft_recipes",
]
MODULES = sorted(path for package in PACKAGES for path in (ROOT / package).rglob("*.py"))
FOLDERS = ["client", "deploy", "docs", "export", "proto", "server", "tests"]
PAGES = sorted([*ROOT.glob("*.md"), *(page for folder in FOLDERS for page in (ROOT / folder).rglob("*.md"))])
MAX_LINES = 400
DRAWERS = {"utils", "util", "helpers", "helper", "misc", "common", "manager"}


def relative(path):
    """A readable test id."""
    return path.relative_to(ROOT).as_posix()


@pytest.mark.parametrize("module", MODULES, ids=relative)
def test_a_module_fits_in_the_head(module):
    """No module of ours is longer than 400 lines. From 300 lines on, it probably holds two nouns."""
    assert len(module.read_text().splitlines()) <= MAX_LINES


def test_no_module_is_a_drawer():
    """A module is named for what it holds; utils, helpers and managers hold anything."""
    assert not [relative(path) for path in MODULES if DRAWERS & set(path.stem.strip("_").split("_"))]


def test_nothing_is_left_to_do():
    """The source holds no TODO: what is open is an issue."""
    assert not [relative(path) for path in MODULES if re.search(r"\b(TODO|FIXME|XXX)\b", path.read_text())]


@pytest.mark.parametrize("page", PAGES, ids=relative)
def test_links_lead_somewhere(page):
    """Every relative link and picture of a page names a file of the repository."""
    targets = re.findall(r"\]\(([^)#\s]+)(?:#[^)]*)?\)", page.read_text())
    local = [target for target in targets if "://" not in target]

    assert not [target for target in local if not (page.parent / target).exists()]


@pytest.mark.parametrize("page", PAGES, ids=relative)
def test_links_into_a_page_name_its_headings(page):
    """Every link to a part of a page of ours, or of the same page, names one of its headings."""
    links = re.findall(r"\]\(([^)#\s:]*)#([^)]+)\)", page.read_text())

    assert not [f"{name}#{part}" for name, part in links if part not in headings(page.parent / name if name else page)]


def headings(page):
    """The names by which GitHub links to a page's headings."""
    text = re.sub(r"^```.*?^```", "", page.read_text(), flags=re.MULTILINE | re.DOTALL)
    lines = re.findall(r"^#+ (.*)$", text, re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", line.lower()).replace(" ", "-") for line in lines}
