"""The map of the server shows the server as it is."""

import re
from pathlib import Path

SERVER = Path(__file__).parents[2] / "server"


def test_the_map_names_every_module_and_no_other():
    """The modules' table in server/README.md has each module of weft_server once."""
    table = (SERVER / "README.md").read_text().split("## Modules", 1)[1].split("## ", 1)[0]
    rows = re.findall(r"^\| (`.*?) \|", table, re.MULTILINE)
    named = [name for row in rows for name in re.findall(r"`(\w+)`", row)]
    modules = {path.stem for path in (SERVER / "weft_server").glob("*.py")} - {"__init__"}
    assert sorted(modules) == sorted(named)
