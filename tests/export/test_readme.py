"""The map of the exporter shows the exporter as it is."""

import re
from pathlib import Path

from weft_export.families.registry import FAMILIES

EXPORT = Path(__file__).parents[2] / "export"
ARCHITECTURES = {family.model.__module__.rpartition(".")[2] for family in FAMILIES.values()}
# A folder with a file for each checkpoint; their cards name them.
UNNAMED = {"recipes"}


def test_the_map_names_every_module_and_no_other():
    """The tables in export/README.md have each module of weft_export once, under its room; families are a line."""
    page = (EXPORT / "README.md").read_text()
    chapter = page.split("## Modules", 1)[1].split("\n## ", 1)[0]
    top, *rooms = re.split(r"^`(\w+)/` ", chapter, flags=re.MULTILINE)
    named = {"weft_export": modules(top)} | {
        room: modules(text) for room, text in zip(rooms[::2], rooms[1::2], strict=True)
    }
    existing = {}
    for path in (EXPORT / "weft_export").rglob("*.py"):
        if path.stem not in ARCHITECTURES | {"__init__"}:
            existing.setdefault(path.parent.name, []).append(path.stem)

    for room in existing.keys() - UNNAMED:
        assert sorted(existing[room]) == named[room]
    assert existing.keys() - UNNAMED == named.keys() - UNNAMED


def modules(text):
    """The modules in the first column of a table."""
    rows = re.findall(r"^\| (`.*?) \|", text, re.MULTILINE)
    return sorted(name for row in rows for name in re.findall(r"`(\w+)`", row))
