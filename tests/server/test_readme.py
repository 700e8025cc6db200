"""The map of the server shows the server as it is."""

import re
from pathlib import Path

SERVER = Path(__file__).parents[2] / "server"


def test_the_map_names_every_file_and_no_other():
    """The tables in server/README.md have each file of weft_server once, under its room."""
    rooms = (SERVER / "README.md").read_text().split("## The rooms", 1)[1].split("\n## ", 1)[0]
    named = []
    for part in rooms.split("\n### ")[1:]:
        room = re.match(r"`([\w/]+/)`", part)
        named += [(room[1] if room else "") + name for name in re.findall(r"^\| `(\w+)` \|", part, re.MULTILINE)]
    package = SERVER / "weft_server"
    files = [path.relative_to(package).with_suffix("").as_posix() for path in package.rglob("*.py")]

    assert sorted(name for name in files if not name.endswith("__init__")) == sorted(named)
