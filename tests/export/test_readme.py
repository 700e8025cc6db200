"""The map of the exporter shows the exporter as it is."""

import re
from pathlib import Path

import pytest

from weft_export.converters.registry import MODULE_OF
from weft_export.families.registry import FAMILIES
from weft_recipes.catalogue import ADAPTERS, RECIPES

EXPORT = Path(__file__).parents[2] / "export"
# Folders with a file for each architecture, kind of checkpoint or recipe, which the tables leave out.
ARCHITECTURES = {family.model.__module__.rpartition(".")[2] for family in FAMILIES.values()}
UNNAMED = {"__init__", *ARCHITECTURES, *MODULE_OF.values(), *(name.replace("-", "_") for name in RECIPES | ADAPTERS)}


@pytest.mark.parametrize(("package", "heading"), [("weft_export", "Modules"), ("weft_recipes", "Recipes")])
def test_the_map_names_every_module_and_no_other(package, heading):
    """The tables in export/README.md have each module of a package once, under its room."""
    page = (EXPORT / "README.md").read_text()
    chapter = page.split(f"## {heading}\n", 1)[1].split("\n## ", 1)[0]
    top, *rooms = re.split(r"^`(\w+)/` ", chapter, flags=re.MULTILINE)
    named = {package: modules(top)} | {room: modules(text) for room, text in zip(rooms[::2], rooms[1::2], strict=True)}
    existing = {}
    for path in (EXPORT / package).rglob("*.py"):
        if path.stem not in UNNAMED:
            existing.setdefault(path.parent.name, []).append(path.stem)

    assert {room: sorted(names) for room, names in existing.items()} == named


def modules(text):
    """The modules in the first column of a table."""
    rows = re.findall(r"^\| (`.*?) \|", text, re.MULTILINE)
    return sorted(name for row in rows for name in re.findall(r"`(\w+)`", row))
