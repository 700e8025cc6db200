"""The manual as a site: `make docs` builds it of all pages, and it asks nothing of anybody else."""

import json
import re
import subprocess
from pathlib import Path

import pytest

from manual_site import ROOT, built


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    """The folder of the site."""
    return built(tmp_path_factory.mktemp("manual") / "manual")


def test_each_page_is_there_and_asks_nobody(site):
    """Styles, scripts, pictures and fonts come from the site. A link to elsewhere is only followed by a click."""
    tracked = subprocess.run(["git", "ls-files", "*.md"], cwd=ROOT, check=True, capture_output=True, text=True)
    pages = {path.relative_to(site).as_posix(): path.read_text() for path in site.rglob("*.html")}
    named = (Path(name).with_suffix("") for name in tracked.stdout.split())
    made = {f"{name.parent if name.name == 'README' else name}/index.html".removeprefix("./") for name in named}
    asked = re.compile(r"<(?:script|img|iframe|source|audio|video)[^>]*\ssrc=\"?https?:|<link[^>]*\shref=\"?https?:")

    assert len(made) > 100
    assert [] == sorted(made - set(pages))
    assert [] == [name for name, text in pages.items() if asked.search(text)]


def test_the_manual_goes_from_a_start_to_its_changes(site):
    """Its parts in the order in which somebody needs them; each begins with the page that is read first."""
    page = (site / "index.html").read_text()
    (tabs,) = re.findall(r"<ul class=md-tabs__list>(.*?)</ul>", page.replace('"', ""), re.DOTALL)
    parts = re.findall(r"<a href=(\S+) class=md-tabs__link>\s*([^<]+?)\s*</a>", tabs)

    assert [(".", "Start"), ("docs/bring-your-own/", "Your model"), ("client/", "Calls"), ("docs/precision/", "Tuning"),
            ("docs/running/", "Running"), ("SECURITY/", "Security"), ("docs/settings/", "Reference"),
            ("docs/architecture/", "How it works"), ("docs/reading-path/", "Course"), ("docs/benchmarks/", "Speed"),
            ("CHANGELOG/", "Changes")] == parts  # fmt: skip


def test_a_picture_opens_by_a_click(site):
    """On a telephone it is too small to be read."""
    page = (site / "docs/architecture/index.html").read_text()

    assert re.search(r"<a href=../images/rooms.svg><img [^>]*src=../images/rooms.svg", page.replace('"', ""))
    assert (site / "docs/images/rooms.svg").is_file()


def test_no_page_leaves_a_picture_to_a_script():
    """The site has none that draws: it would show the source. A picture is a file, which GitHub shows too."""
    tracked = subprocess.run(["git", "ls-files", "*.md"], cwd=ROOT, check=True, capture_output=True, text=True)
    drawn = re.compile(r"^```(?:mermaid|dot|plantuml|d2|geojson|topojson|stl|math)", re.MULTILINE)

    assert [] == [name for name in tracked.stdout.split() if drawn.search((ROOT / name).read_text())]


def test_the_code_writes_the_reference_and_the_search_finds_it(site):
    """Each command, call and message."""
    index = json.loads((site / "search/search_index.json").read_text())
    found = {entry["location"].split("#")[0] for entry in index["docs"]}

    commands = (site / "reference/commands/index.html").read_text()
    assert [] == [
        word for word in ("weft translate", "--idle-unload-s", "--precision", "--slo-ttft") if word not in commands
    ]
    assert "StreamTranscribe" in (site / "reference/rpcs/index.html").read_text()
    assert "/v1/chat/completions" in (site / "reference/http/index.html").read_text()
    assert "3.1.0" == json.loads((site / "reference/openapi.json").read_text())["openapi"]
    assert {"reference/commands/", "reference/rpcs/", "docs/errors/", "docs/reading-path/"} <= found
