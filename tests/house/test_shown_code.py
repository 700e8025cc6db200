"""What a page shows to be typed can be typed: commands parse, targets exist, Python calls what the SDK has.

Most pages are also run, by the tests in RUN_BY.
"""

import ast
import inspect
import re
import shlex

import pytest

import weft
import weft.plot
from shown_code import ROOT, blocks, pages, read, typed
from shown_parts import NOT_TYPED, PARTS, parts, said_of
from weft_command.plugins import PLUGINS, loaded
from weft_command.running import command_of
from weft_server.config import ServerConfig, flag_name

SERVE_FLAGS = {flag for name in ServerConfig.model_fields for flag in (flag_name(name), f"--no-{flag_name(name)[2:]}")}
PROGRAMS = ("weft", "make", "curl", "helm", "kubectl", "docker", "pip", "npm")
SDK = {"client": weft.Client, "weft": weft}
# Pages whose code is run, each day or in `make test-all`, and by what.
RUN_BY = {
    "README.md": "tests/e2e/test_pages.py",
    "client/README.md": "tests/e2e/test_client_page.py",
    "deploy/README.md": "tests/deploy/test_docker.py",
    "docs/bring-your-own.md": "tests/e2e/test_bring_your_own.py",
    "docs/errors.md": "tests/e2e/test_pages.py",
    "docs/http.md": "tests/e2e/test_pages.py",
    "docs/new-family.md": "tests/e2e/test_new_family.py",
    "docs/openai.md": "tests/e2e/test_pages.py",
    "docs/other-languages.md": "tests/clients/test_clients.py",
    "docs/reading-path.md": "tests/e2e/test_pages.py",
    "docs/start.md": "tests/e2e/test_pages.py",
}
# The others with something to type, and why nobody runs it as it stands.
NOT_RUN = {
    "CONTRIBUTING.md": "targets of make, which CI and the nights run",
    "docs/architecture.md": "a picture",
    "docs/capacity.md": "several servers; tests/e2e/test_balancing.py has them",
    "docs/console.md": "the page itself is in a browser; tests/clients/test_console.py has it",
    "docs/gpu.md": "needs a device",
    "docs/hugging-face.md": "needs the hub's files; make test-real has some of them",
    "docs/load.md": "minutes of load; tests/e2e/test_bench.py and test_plan.py have less of it",
    "docs/migrating.md": "needs a repository of Triton; tests/export/test_wrap.py has the command",
    "docs/precision.md": "my-checkpoint is the reader's own; tests/export/test_command.py has the command",
    "docs/running.md": "servers that run on; tests/e2e/test_process.py starts them",
    "export/README.md": "my-checkpoint is the reader's own; tests/export/test_command.py has the command",
    "tests/bench/peers/README.md": "hours of load",
    "tests/mutants/README.md": "hours of tests",
}
TESTS = {
    name
    for path in (ROOT / "tests").rglob("test_*.py")
    for name in re.findall(r"^def (test_\w+)", path.read_text(), re.MULTILINE)
}
# Where one of these is imported, `client` is theirs.
OTHERS = re.compile(r"^(?:import|from) (?!weft\b)\w*(?:openai|client|litellm|langchain)", re.MULTILINE)


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


def test_each_page_with_something_to_type_is_run_or_says_why_not():
    """And none has a reason, or a test, that has nothing to type, or that does not name the page."""
    has_code = {
        page for page in pages() if any(list(typed(page, program)) for program in PROGRAMS) or "```" in read(page)
    }
    assert sorted(has_code) == sorted([*RUN_BY, *NOT_RUN])
    assert [] == [page for page, test in RUN_BY.items() if page not in re.sub(r'" / "', "/", read(test))]


@pytest.mark.parametrize("page", RUN_BY)
def test_each_part_of_a_page_that_is_run_is_run_or_says_why_not(page):
    """A block of code, or a line of a shell. What is said is of something on the page, and a test that is named is."""
    shown = list(parts(page))
    said = {part: said_of(page, part) for part in shown}
    assert [] == [part for part, by in said.items() if not by]
    unused = [begin for begin in PARTS[page] if not any(PARTS[page][begin] == by for by in said.values())]
    assert [] == unused
    assert {by for by in said.values() if by.startswith("test_")} <= TESTS
    assert any(by in TESTS for by in said.values()) or page == "deploy/README.md"


def test_no_reason_is_without_its_part():
    """Of those that hold on all pages."""
    begun = [part for page in RUN_BY for part in parts(page)]
    assert [] == [begin for begin in NOT_TYPED if not any(part.startswith(begin) for part in begun)]


@pytest.mark.parametrize("page", [page for page in pages() if list(typed(page, "weft"))])
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


def test_each_target_is_there():
    """Of `make`."""
    targets = set(re.findall(r"^([\w-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    lines = [(page, shlex.split(line, comments=True)[1:]) for page in pages() for line in typed(page, "make")]
    asked = [(page, word) for page, words in lines for word in words if "=" not in word and not word.startswith("-")]
    assert len(asked) > 20
    assert [] == [(page, word) for page, word in asked if word not in targets]


@pytest.mark.parametrize("page", [page for page in pages() if list(blocks(page, "python"))])
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
