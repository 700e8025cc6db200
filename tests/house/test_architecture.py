"""docs/architecture.md shows the house as it is."""

import re
import tomllib
from itertools import pairwise
from pathlib import Path
from xml.etree import ElementTree as ET

import pytest

import rooms_picture
from layered_picture import HEIGHT, WIDTH, LayeredPicture

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs/architecture.md").read_text()
CONTRACTS = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]["contracts"]
LAYERS = {contract["containers"][0]: contract["layers"] for contract in CONTRACTS if "containers" in contract}
HOMES = ("", "server/weft_server", "export/weft_export")


def section(title):
    """What stands under a heading of the page."""
    return PAGE.split(f"\n## {title}\n", 1)[1].split("\n## ", 1)[0]


def names(layer):
    """The rooms of one line of a drawing or a contract."""
    return {name.strip().rstrip("/") for name in re.split("[|:]", layer)}


@pytest.mark.parametrize(
    ("title", "package"), [("The rooms of the server", "weft_server"), ("The rooms of the exporter", "weft_export")]
)
def test_the_drawing_is_the_contract(title, package):
    """The drawing has the rooms that import-linter holds, in its order."""
    drawing = section(title).split("```")[1]
    lines = [re.split(r"\s{3,}", line.strip())[0] for line in drawing.splitlines()]

    assert [names(layer) for layer in LAYERS[package]] == [names(line) for line in lines if line not in {"", "|"}]


def test_each_room_s_table_has_its_files():
    """server/README.md says what each file of the server is: no more, no fewer."""
    page = (ROOT / "server/README.md").read_text()
    rooms = re.findall(r"^### `([a-z_/]+)/`.*?\n(.*?)(?=^##)", page, re.DOTALL | re.MULTILINE)
    tables = {room: sorted(re.findall(r"^\| `(\w+)` \|", table, re.MULTILINE)) for room, table in rooms}
    home = ROOT / "server/weft_server"
    files = {room: sorted(path.stem for path in (home / room).glob("[!_]*.py")) for room in tables}

    assert files == tables
    assert {path.parent.relative_to(home).as_posix() for path in home.glob("*/**/__init__.py")} == set(tables)


def test_the_picture_is_the_code():
    """It has the rooms, their lines and imports as they are: `make picture` draws them again."""
    assert rooms_picture.picture() == rooms_picture.PICTURE.read_text()


def test_a_picture_has_each_box_and_arrow_once():
    """An arrow begins below the one box and ends above the other. No box meets another, or an arrow that passes."""
    arrows = [("a", "b"), ("a", "c"), ("b", "d"), ("c", "d"), ("a", "d"), ("e", "d"), ("d", "f"), ("a", "f")]
    made = LayeredPicture([(name, f"{name}!") for name in "abcdefg"], arrows)
    root = ET.fromstring(made.svg("letters"))
    boxes = [{key: float(each.get(key)) for key in ("x", "y")} for each in root.findall("{*}rect")[1:]]
    texts = [each.text for each in root.findall("{*}text")]
    places = dict(zip(texts[::2], boxes, strict=True))
    ways = [[float(each) for each in re.findall(r"-?[\d.]+", path.get("d"))] for path in root.findall("{*}path")]

    assert [f"{name}!" for name in "abcdefg"] == texts[1::2]
    for (above, below), (x, y, *_, to_x, to_y) in zip(arrows, ways, strict=True):
        one, other = places[above], places[below]
        assert (one["x"] + WIDTH / 2, one["y"] + HEIGHT) == pytest.approx((x, y), abs=0.1)
        assert (other["x"] + WIDTH / 2, other["y"] - 2) == pytest.approx((to_x, to_y), abs=0.1)
        assert y < to_y
    passed = [path.get("d").count("V") for path in root.findall("{*}path")]
    assert [0, 0, 0, 0, 1, 1, 0, 2] == passed
    for line in made.lines:
        sides = [(made.places[each], WIDTH if each[1] == 0 else 0) for each in line]
        for (x, width), (next_x, next_width) in pairwise(sides):
            assert next_x - x >= (width + next_width) / 2


def test_every_path_is_there():
    """A file or folder that the page names exists, from the root, or in the server's or the exporter's package."""
    named = re.findall(r"`([\w./-]+/[\w./-]*|[\w./-]+\.(?:py|md|toml|proto))`", PAGE)

    assert len(named) > 50
    assert [] == [name for name in named if not any((ROOT / home / name).exists() for home in HOMES)]


def test_the_files_of_a_new_rpc_are_counted():
    """The page says how many there are, and how many are left if the task exists: those of other words and rows go."""
    count, table = re.search(r"These (\d+) files are written by hand\..*?\n\n(\|.*?)\n\n", PAGE, re.DOTALL).groups()
    rows = [line for line in table.splitlines()[2:] if line.startswith("| ")]

    assert int(count) == len(rows) <= 20
    assert len(rows) - 6 == int(re.search(r"If the task exists, (\d+) files are left", PAGE)[1])


@pytest.mark.parametrize("title", ["A translate request, in eight hops", "A token of a stream, in eight hops"])
def test_a_way_is_short(title):
    """A request, and a token, is followed in at most eight hops."""
    hops = re.findall(r"^(\d+)\. ", section(title), re.MULTILINE)

    assert [str(number) for number in range(1, len(hops) + 1)] == hops
    assert 5 < len(hops) <= 8
