"""Draws the rooms of the server for docs/architecture.md, from their imports: `make picture`.

Each room has its lines of code, in hundreds. An arrow goes from a room to one that it imports, and none where other
arrows lead there too: from `rpc` to `models` one goes by the rooms between them.
"""

import ast
from collections import defaultdict
from functools import cache
from pathlib import Path

from layered_picture import LayeredPicture

ROOT = Path(__file__).parents[1]
PACKAGE = ROOT / "server/weft_server"
PICTURE = ROOT / "docs/images/rooms.svg"


def room_of(path):
    """The room of a file: its folder, or itself."""
    return path.relative_to(PACKAGE).parts[0].removesuffix(".py")


def rooms():
    """Return the lines of each room, and which others it imports. Annotations count."""
    lines, imports = defaultdict(int), defaultdict(set)
    for path in sorted(PACKAGE.rglob("*.py")):
        room = room_of(path)
        if room == "__init__":
            continue
        text = path.read_text()
        lines[room] += len(text.splitlines())
        for node in ast.walk(ast.parse(text)):
            module = node.module if isinstance(node, ast.ImportFrom) else None
            if module and module.startswith("weft_server."):
                imports[room].add(module.split(".")[1])
            elif module == "weft_server":
                imports[room] |= {alias.name for alias in node.names}
    return lines, {room: imports[room] - {room} for room in lines}


def hundreds(number):
    """Lines in hundreds: a picture of each single one would have to be drawn again at each change."""
    return f"{round(number, -2):,} lines" if number >= 100 else "under 100 lines"


def arrows(imports):
    """Yield the arrows that no other way of arrows stands for."""

    @cache
    def below(room):
        return frozenset(imports[room].union(*map(below, imports[room])))

    for room, others in sorted(imports.items()):
        yield from ((room, other) for other in sorted(others) if not any(other in below(each) for each in others))


def picture():
    """Return the picture of the code as it is."""
    lines, imports = rooms()
    boxes = [(room, hundreds(lines[room])) for room in sorted(lines)]
    return LayeredPicture(boxes, list(arrows(imports))).svg("The rooms of the server, and which of them imports which")


if __name__ == "__main__":
    PICTURE.write_text(picture())
