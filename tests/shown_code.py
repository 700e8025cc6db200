"""What the manual's pages show to be typed: their blocks of code, and the command lines in them."""

import re
import subprocess
from pathlib import Path

ROOT = Path(__file__).parents[1]
# Written by code (tests/client/api_page.py), of what is older, or of a run of its day.
LEFT_OUT = ("docs/api.md", "CHANGELOG.md", "docs/benchmarks/", "docs/log-of-speed.md")
FENCED = re.compile(r"^```(\w*)\n(.*?)^```", re.MULTILINE | re.DOTALL)
INDENTED = re.compile(r"(?:^    .*\n)+", re.MULTILINE)
# What stands behind a command on its line: where its output goes, or what the page says it prints.
BEHIND = re.compile(r"\s(?:\||&&|>|<|&|2>)(?:\s|$)|\s{4,}")


def pages():
    """Each page of the manual, by its path."""
    listed = subprocess.run(["git", "ls-files", "*.md"], cwd=ROOT, check=True, capture_output=True, text=True)
    return [name for name in listed.stdout.split() if not name.startswith(LEFT_OUT)]


def read(path):
    """The text of a file, by its path from the root."""
    return (ROOT / path).read_text()


def blocks(page, *languages):
    """The code blocks of a page in a language; "" are those that are indented."""
    text = read(page)
    yield from (found[2] for found in FENCED.finditer(text) if found[1] in languages)
    if "" in languages:
        yield from (re.sub(r"^    ", "", each, flags=re.MULTILINE) for each in INDENTED.findall(FENCED.sub("", text)))


def typed(page, program):
    """The command lines of a program that a page shows."""
    for block in blocks(page, "", "sh", "console", "text"):
        for line in block.replace("\\\n", " ").splitlines():
            said = line.strip().removeprefix("$ ")
            # `weft export: ...` is what a command says.
            if said.startswith(f"{program} ") and not re.match(rf"{program} [\w-]+: ", said):
                yield BEHIND.split(said)[0]
