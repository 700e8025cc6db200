"""What a page shows to be typed can be typed: commands parse, targets exist, Python calls what the SDK has.

Whole pages are also run: tests/e2e/test_pages.py, tests/e2e/test_bring_your_own.py, tests/clients.
"""

import ast
import inspect
import re
import shlex
import subprocess
from pathlib import Path

import pytest

import weft
import weft.plot
from weft_command.plugins import PLUGINS, loaded
from weft_command.running import command_of
from weft_server.config import ServerConfig, flag_name

ROOT = Path(__file__).parents[2]
# Written by code (tests/client/api_page.py), of what is older, or of a run of its day.
LEFT_OUT = ("docs/api.md", "CHANGELOG.md", "docs/benchmarks/", "docs/log-of-speed.md")
FENCED = re.compile(r"^```(\w*)\n(.*?)^```", re.MULTILINE | re.DOTALL)
INDENTED = re.compile(r"(?:^    .*\n)+", re.MULTILINE)
# What stands behind a command on its line: where its output goes, or what the page says it prints.
BEHIND = re.compile(r"\s(?:\||&&|>|<|&|2>)(?:\s|$)|\s{4,}")
SERVE_FLAGS = {flag for name in ServerConfig.model_fields for flag in (flag_name(name), f"--no-{flag_name(name)[2:]}")}
SDK = {"client": weft.Client, "weft": weft}
# Where one of these is imported, `client` is theirs.
OTHERS = re.compile(r"^(?:import|from) (?!weft\b)\w*(?:openai|client|litellm|langchain)", re.MULTILINE)


def pages():
    """Each page of the manual, by its path."""
    listed = subprocess.run(["git", "ls-files", "*.md"], cwd=ROOT, check=True, capture_output=True, text=True)
    return [name for name in listed.stdout.split() if not name.startswith(LEFT_OUT)]


def blocks(page, *languages):
    """The code blocks of a page in a language; "" are those that are indented."""
    text = (ROOT / page).read_text()
    yield from (found[2] for found in FENCED.finditer(text) if found[1] in languages)
    if "" in languages:
        yield from (re.sub(r"^    ", "", each, flags=re.MULTILINE) for each in INDENTED.findall(FENCED.sub("", text)))


def typed(page, program):
    """The command lines of a program that a page shows."""
    for block in blocks(page, "", "sh", "console", "text"):
        for line in block.replace("\\\n", " ").splitlines():
            said = line.strip().removeprefix("$ ")
            if said.startswith(f"{program} ") and not said.startswith(f"{program} serve: "):
                yield BEHIND.split(said)[0]


@pytest.fixture(scope="module")
def command():
    """`weft` with all subcommands."""
    command = command_of(["--help"])
    command.commands |= {name: loaded(name) for name in PLUGINS}
    return command


def left_over(command, words, parent=None):
    """The words of a command line that it does not take. Raises what its parser raises."""
    context = command.context_class(command, parent=parent, **command.context_settings)
    _, rest, _ = command.make_parser(context).parse_args(list(words))
    if not hasattr(command, "commands") or not rest:
        return rest
    return left_over(command.commands[rest[0]], rest[1:], context)


@pytest.mark.parametrize("page", pages())
def test_each_command_parses(command, page):
    """Its subcommand and its flags are there. `weft up` hands flags on to `weft serve`."""
    for line in typed(page, "weft"):
        words = shlex.split(line, comments=True)[1:]
        rest = left_over(command, words)
        assert [] == [word for word in rest if words[0] != "up" or not _is_of_serve(word, rest)], line


def _is_of_serve(word, rest):
    """Whether a word is a flag of `weft serve`, or the value of one."""
    before = rest[rest.index(word) - 1] if rest.index(word) else ""
    return word.partition("=")[0] in SERVE_FLAGS or (not word.startswith("-") and before in SERVE_FLAGS)


@pytest.mark.parametrize("page", pages())
def test_each_target_is_there(page):
    """Of `make`."""
    targets = set(re.findall(r"^([\w-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    asked = [word for line in typed(page, "make") for word in shlex.split(line, comments=True)[1:] if "=" not in word]
    assert [] == [word for word in asked if word not in targets and not word.startswith("-")]


@pytest.mark.parametrize("page", pages())
def test_python_calls_what_is_there(page):
    """Each block is Python, and each call of the SDK has arguments that it takes."""
    is_of_the_sdk = "weft.Client" in (ROOT / page).read_text()
    for block in blocks(page, "python"):
        parsed = ast.parse(block)
        if is_of_the_sdk and not OTHERS.search(block):
            for node in ast.walk(parsed):
                _check(node)


def _check(node):
    called = node.func if isinstance(node, ast.Call) else node
    of = called.value if isinstance(called, ast.Attribute) else None
    if not (isinstance(of, ast.Name) and of.id in SDK):
        return
    assert hasattr(SDK[of.id], called.attr), ast.unparse(node)
    if isinstance(node, ast.Call):
        # A method's own object is the first argument.
        positional = node.args if of.id == "weft" else [None, *node.args]
        named = {each.arg: None for each in node.keywords if each.arg}
        inspect.signature(getattr(SDK[of.id], called.attr)).bind_partial(*positional, **named)
