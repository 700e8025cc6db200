"""Writes the tables of docs/openai.md from the endpoints' fields: `python tests/openai_page.py`."""

import re
from pathlib import Path

from weft_server.openai_api.routes import ENDPOINTS

PAGE = Path(__file__).parents[1] / "docs" / "openai.md"
_TABLE = re.compile(r"(<!-- Fields of (\S+) -->\n).*?(<!-- The fields end\. -->)", re.DOTALL)


def page():
    """The page, with its tables as the code has them."""
    return _TABLE.sub(lambda found: f"{found[1]}{_fields(found[2])}\n{found[3]}", PAGE.read_text("utf-8"))


def paths():
    """The paths whose tables the page has."""
    return [found[2] for found in _TABLE.finditer(PAGE.read_text("utf-8"))]


def _fields(path):
    (fields,) = (each.fields for each in ENDPOINTS if each.path == path)
    lines = ["", "| Field | What it asks for |", "|---|---|"]
    lines += [f"| `{each.name}` | {each.says} |" for each in fields.taken]
    if fields.refused:
        lines += ["", "Refused, unless it asks for nothing:", ""]
        lines += [f"- `{each.name}`: {each.why}" for each in fields.refused]
    if fields.ignored:
        lines += ["", "Ignored:", "", *(f"- `{each}`" for each in fields.ignored)]
    return "\n".join([*lines, ""])


if __name__ == "__main__":
    PAGE.write_text(page(), "utf-8")
