"""Draws the rooms of the server into docs/architecture.md, from their imports: `make picture`.

Each room has its lines of code, in hundreds. An arrow goes from a room to one that it imports, and none where other
arrows lead there too: from `rpc` to `models` one goes by the rooms between them.
"""

import ast
from collections import defaultdict
from functools import cache
from pathlib import Path

ROOT = Path(__file__).parents[1]
PACKAGE = ROOT / "server/weft_server"
PAGE = ROOT / "docs/architecture.md"
BEGIN, END = "<!-- Made by `make picture`. -->\n", "<!-- The picture ends. -->\n"


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
    """Return the picture, as a page of GitHub shows it."""
    lines, imports = rooms()
    nodes = [f'    {room}["{room}<br/>{hundreds(lines[room])}"]' for room in sorted(lines)]
    edges = [f"    {room} --> {other}" for room, other in arrows(imports)]
    return "\n".join(["```mermaid", "flowchart TD", *nodes, *edges, "```", ""])


def page():
    """Return the page with the picture of the code as it is."""
    before, rest = PAGE.read_text().split(BEGIN)
    return before + BEGIN + picture() + END + rest.split(END)[1]


if __name__ == "__main__":
    PAGE.write_text(page())
