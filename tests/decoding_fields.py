"""Writes the numbers of `weft.Decoding` and `weft.Sampling`, of the contract and its table: `make sync`.

Each has its line in the class, and one in the docstring, which says what the contract's comment says.
"""

import re
import textwrap
from pathlib import Path

from weft_proto.decoding import PENALTIES, SAMPLING
from weft_proto.v1 import common_pb2
from weft_server.api.contract_comments import comments_of

PAGE = Path(__file__).parents[1] / "client/weft/_decoding.py"
TABLES = {common_pb2.Sampling: SAMPLING, common_pb2.Penalties: PENALTIES}


def page():
    """Return the file with the lines of each table, in the order of the contract: new ones stand last."""
    text = PAGE.read_text("utf-8")
    for message, table in TABLES.items():
        fields = sorted(table, key=lambda each: message.DESCRIPTOR.fields_by_name[each.field].number)
        names = "|".join(each.name for each in fields)
        said, typed = rf"(    - `({names})` .*\n(      .*\n)*)+", rf"(    ({names}): .*\n)+"
        for lines, makes in ((said, _says), (typed, _types)):
            made = "".join(makes(each, message) for each in fields)
            text, count = re.subn(lines, lambda _, made=made: made, text)
            assert 1 == count, f"{count} places for the lines of {message.DESCRIPTOR.name}"
    return text


def _says(field, message):
    comment = comments_of(message.DESCRIPTOR.file.name)[f"{message.DESCRIPTOR.full_name}.{field.field}"]
    others = {each.field: each.name for each in TABLES[message] if "_" in each.field}
    comment = re.sub(rf"\b({'|'.join(others)})\b", lambda found: f"`{others[found[0]]}`", comment)
    comment = re.sub(r"^`?\w+`? ", f"`{field.name}` ", comment.replace("INVALID_ARGUMENT", "`InvalidRequest`"))
    wrapped = textwrap.wrap(comment, 112, initial_indent="- ", subsequent_indent="  ", break_long_words=False)
    return textwrap.indent("\n".join(wrapped) + "\n", "    ")


def _types(field, _):
    return f"    {field.name}: {field.kind.__name__} | None = None\n"


if __name__ == "__main__":
    PAGE.write_text(page(), "utf-8")
