"""Pages, comments and strings name files, rooms and modules that are there."""

import io
import re
import subprocess
import tokenize
from pathlib import Path

ROOT = Path(__file__).parents[2]
LISTED = subprocess.run(
    ["git", "ls-files", "-co", "--exclude-standard"], cwd=ROOT, check=True, capture_output=True, text=True
).stdout.split()
THERE = {name for name in LISTED if (ROOT / name).exists()}
FOLDERS = {parent.as_posix() for name in THERE for parent in Path(name).parents}
SUFFIXES = {name[start:] for name in THERE | FOLDERS for start, at in enumerate(f"/{name}") if at == "/"}
# What tells of the past names what was there then. The stubs are made.
KEPT = re.compile(
    r"CHANGELOG\.md|docs/log-of-speed\.md|docs/benchmarks/|proto/weft_proto/v1/|tests/house/test_paths\.py"
)
SAYS = re.compile(r"\.(md|py|toml|ya?ml)$|(Makefile|ockerfile|\.ci/run)$")
NAMES = sorted(name for name in THERE if SAYS.search(name) and not KEPT.match(name))
PATH = re.compile(r"(?<![\w/.<>{}*$:~-])((?:[\w-]+/)+\w+\.py)\b")
ROOM = re.compile(r"`((?:[a-z_]+/)+)`")
MODULE = re.compile(r"(?<![\w./])(weft_(?:server|export|recipes|proto)(?:\.\w+)+)")
HOMES = {"weft_server": "server", "weft_export": "export", "weft_recipes": "export", "weft_proto": "proto"}
# Files of others, and of examples. A build makes what lies in build/.
OTHERS = {"bag-of-words/bag_of_words.py", "bag/__init__.py", "bag/deep/module.py", "json/decoder.py"}
OTHERS |= {"checkpoint/", "weights/vit/images/", "weft_server.nothing"}


def said(text):
    """What a source says to people: its comments and strings."""
    kinds = {tokenize.COMMENT, tokenize.STRING}
    tokens = tokenize.generate_tokens(io.StringIO(text).readline)
    return "\n".join(token.string for token in tokens if token.type in kinds)


def is_module(dotted):
    """Whether a dotted name leads to a module, or into one."""
    package, *parts = dotted.split(".")
    folder = f"{HOMES[package]}/{package}"
    for part in parts:
        if f"{folder}.py" in THERE:
            return True
        folder += f"/{part}"
    return f"{folder}.py" in THERE or folder in FOLDERS


def gone(name):
    """What a file names that is not there: all of a page, and what a source says to people."""
    text = (ROOT / name).read_text()
    found = gone_from(name, text)
    # Few sources have to be cut into tokens.
    return gone_from(name, said(text)) if found and name.endswith(".py") else found


def gone_from(name, text):
    """What a text in this file names that is not there."""
    found = [path for path in PATH.findall(text) if path not in SUFFIXES]
    found += [module for module in MODULE.findall(text) if not is_module(module)]
    found += [room for room in ROOM.findall(text) if name.endswith(".md") and room.rstrip("/") not in SUFFIXES]
    return [what for what in found if what not in OTHERS and not what.startswith("build/")]


def test_what_is_named_is_there():
    """Each path to a source, each room and each module that is named exists: from the root, or from any folder."""
    assert len(NAMES) > 500
    assert [] == [f"{name}: {what}" for name in NAMES for what in gone(name)]
