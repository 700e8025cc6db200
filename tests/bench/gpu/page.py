"""The page that the pieces make together."""

import json

from pieces import PIECES


def write_page(folder, about):
    """Write `page.md` of what lies in the folder: a file for each piece of each shape."""
    lines = [f"# The first hour on {about['device']}, {about['date']}", "", *_about(about)]
    shapes = sorted({path.stem.partition(".")[0] for path in folder.glob("*.*.json")}, key=_size)
    for shape in shapes:
        lines += ["", f"## {shape}"]
        for name, piece in PIECES.items():
            path = folder / f"{shape}.{name}.json"
            if path.is_file():
                lines += ["", f"### {piece.question}", "", *_part(json.loads(path.read_text()), piece)]
    page = folder / "page.md"
    page.write_text("\n".join(lines) + "\n")
    return page


def _size(shape):
    return shape[-1], shape


def _about(about):
    return [f"- {name}: {value}" for name, value in about.items()]


def _part(part, piece):
    lines = [f"Took {part['seconds']:.0f} s. Expected: {piece.expected}.", ""]
    if "failed" in part:
        return [*lines, f"**Failed:** {part['failed']}"]
    return [*lines, *_table(part["results"])]


def _table(results):
    columns = list(dict.fromkeys(name for result in results for name in result))
    head = ["| " + " | ".join(columns) + " |", "|" + "---|" * len(columns)]
    return head + ["| " + " | ".join(str(result.get(name, "")) for name in columns) + " |" for result in results]
