"""Writes the table of keywords in server/README.md from that of the code: `python tests/keyword_table.py`."""

import re
from pathlib import Path

from weft_server.structured_output.schema_keywords import KEYWORDS

README = Path(__file__).parents[1] / "server/README.md"
_TABLE = re.compile(r"(?<=^\| Keyword \| Is \| \|\n\|---\|---\|---\|\n)(?:\|.*\n)*", re.MULTILINE)


def page():
    """Return the manual with the table that the code has."""
    rows = [f"| `{word}` | {each.treated.value} | {each.note} |\n" for word, each in KEYWORDS.items()]
    table = "".join(rows).replace("|  |", "| |")
    made, count = _TABLE.subn(lambda _: table, README.read_text("utf-8"))
    assert 1 == count, "the manual has no place for the table"
    return made


if __name__ == "__main__":
    README.write_text(page(), "utf-8")
