"""The shape of the source: small files, one noun each, one word per thing."""

import ast
import re
from collections import Counter
from functools import cache
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
    """A path as a person reads it."""
    return path.relative_to(ROOT).as_posix()


def test_a_module_fits_in_the_head():
    """No module of ours is longer than 400 lines. From 300 lines on, it probably holds two nouns."""
    assert [] == [relative(path) for path in MODULES if len(path.read_text().splitlines()) > MAX_LINES]


def test_no_module_is_a_drawer():
    """A module is named for what it holds; utils, helpers and managers hold anything."""
    assert not [relative(path) for path in MODULES if DRAWERS & set(path.stem.strip("_").split("_"))]


@pytest.mark.parametrize("package", PACKAGES)
def test_no_class_has_another_s_name(package):
    """Who reads a name knows which class of a package it is, private or not. `_sync/` is made of `_async/`."""
    modules = [path for path in MODULES if path.is_relative_to(ROOT / package)]
    nodes = [node for path in modules for node in ast.parse(path.read_text()).body]
    names = Counter(node.name for node in nodes if isinstance(node, ast.ClassDef))

    assert set() == {name for name, count in names.items() if count > 1}
    assert names or package == "client/weft_command"


def test_nothing_is_left_to_do():
    """The source holds no TODO: what is open is an issue."""
    assert not [relative(path) for path in MODULES if re.search(r"\b(TODO|FIXME|XXX)\b", path.read_text())]


def test_no_server_of_a_test_shares_its_port():
    """At `localhost:0` gRPC may take, for the second kind of address, a port that another test's server has."""
    tests = {relative(path): path.read_text() for path in (ROOT / "tests").rglob("*.py")}
    assert len(tests) > 300
    assert [] == [name for name, text in tests.items() if re.search(r"add_\w*port\(.*\blocalhost:0", text)]


def test_links_lead_somewhere():
    """Every relative link and picture of a page names a file of the repository."""
    links = links_of(r"\]\(([^)#\s]+)(?:#[^)]*)?\)")

    assert len(links) > 100
    assert [] == [
        (relative(page), target)
        for page, target in links
        if "://" not in target and not (page.parent / target).exists()
    ]


def test_links_into_a_page_name_its_headings():
    """Every link to a part of a page of ours, or of the same page, names one of its headings."""
    links = links_of(r"\]\(([^)#\s:]*)#([^)]+)\)")

    assert len(links) > 20
    assert [] == [
        (relative(page), f"{name}#{part}")
        for page, (name, part) in links
        if part not in headings(page.parent / name if name else page)
    ]


def links_of(pattern):
    """What a pattern finds in the pages, each with its page."""
    return [(page, found) for page in PAGES for found in re.findall(pattern, page.read_text())]


@cache
def headings(page):
    """The names by which GitHub links to a page's headings."""
    text = re.sub(r"^```.*?^```", "", page.read_text(), flags=re.MULTILINE | re.DOTALL)
    lines = re.findall(r"^#+ (.*)$", text, re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", line.lower()).replace(" ", "-") for line in lines}


def test_a_name_of_the_server_means_one_thing():
    """No two files of the server have one name, and no two classes: who reads a name knows which is meant."""
    home = ROOT / "server" / "weft_server"
    paths = [path for path in home.rglob("*.py") if path.stem != "__init__"]
    files = Counter(path.stem for path in paths)
    classes = Counter(
        node.name
        for path in paths
        for node in ast.parse(path.read_text()).body
        if isinstance(node, ast.ClassDef) and not node.name.startswith("_")
    )

    assert [] == [name for name, count in (files + classes).items() if count > 1]
    assert len(classes) > 300
