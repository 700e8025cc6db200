"""Who types what a page shows sees what the page shows."""

import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from process import ServerProcess
from shown_code import typed

ROOT = Path(__file__).parents[2]
WEFT = str(Path(sys.executable).with_name("weft"))

pytestmark = pytest.mark.e2e


def shown(page):
    """(command, what the page shows under it) for each `$ weft ...` of a page, in order."""
    text = (ROOT / page).read_text()
    blocks = re.findall(r"^```console\n(.*?)^```", text, re.MULTILINE | re.DOTALL)
    blocks += [
        re.sub(r"^    ", "", block, flags=re.MULTILINE) for block in re.findall(r"(?:^    .*\n)+", text, re.MULTILINE)
    ]
    lines = "\n$ \n".join(blocks).replace("\\\n", " ")
    return re.findall(r"^\$ (weft .*)\n((?:(?!\$ ).*\n?)*)", lines, re.MULTILINE)


@pytest.fixture
def checkout(tmp_path):
    """A folder like a clone's root, as far as the pages' commands read it, and free to be written into."""
    (tmp_path / "export").symlink_to(ROOT / "export")
    return tmp_path


@pytest.fixture(scope="module")
def all_models(tmp_path_factory):
    """One repository of links to every exported checkpoint, as `make serve-all` makes it."""
    repository = tmp_path_factory.mktemp("all")
    for kind in ("models", "families"):
        for model in (ROOT / "build" / kind).iterdir():
            (repository / model.name).symlink_to(model)
    return repository


def follow(page, repository, folder):
    """Type every command of the page; return what the page shows and what came."""
    expected, seen = {}, {}
    with ServerProcess(repository, host="127.0.0.1") as server:
        server.wait_for("ready")
        for command, answer in shown(page):
            program = [WEFT, *shlex.split(command)[1:]]
            environment = os.environ | {"WEFT_TARGET": server.target}
            done = subprocess.run(program, cwd=folder, env=environment, check=False, capture_output=True, text=True)
            expected[command] = (0, answer.rstrip(), "")
            seen[command] = (done.returncode, done.stdout.rstrip(), done.stderr)
    return expected, seen


@pytest.mark.parametrize(("page", "least"), [("README.md", 2), ("docs/start.md", 8)])
def test_a_first_page_shows_what_comes(demo_repository, checkout, page, least):
    """Each command prints, against the demo models, what stands under it."""
    expected, seen = follow(page, demo_repository, checkout)

    assert least <= len(expected)
    assert expected == seen


@pytest.mark.parametrize(("page", "least"), [("README.md", 1), ("docs/start.md", 3)])
def test_a_first_page_s_python_runs(server, checkout, page, least):
    """The Python of the SDK runs as it stands, but for the server's address, and prints answers."""
    _, source = blocks(page, "python")
    assert "localhost:7070" in source
    program = [sys.executable, "-c", source.replace("localhost:7070", server.target)]
    done = subprocess.run(program, cwd=checkout, check=False, capture_output=True, text=True)

    assert (0, "") == (done.returncode, done.stderr)
    assert "estamos comiendo pan" == done.stdout.splitlines()[0]
    assert least <= len(done.stdout.splitlines())


@pytest.mark.parametrize("page", ["README.md", "docs/start.md"])
def test_a_first_page_s_http_runs(http_server, checkout, page):
    """Curl and OpenAI's client get what the page says, as they stand but for the server's address."""
    source, _ = blocks(page, "python")
    (commands,) = [block for block in blocks(page, "sh") if block.startswith("curl ")]
    for program in ([sys.executable, "-c", source], ["bash", "-e", "-c", commands]):
        program[-1] = program[-1].replace("localhost:8000", http_server)
        done = subprocess.run(program, cwd=checkout, check=False, capture_output=True, text=True)
        assert (0, True) == (done.returncode, "estamos comiendo pan" in done.stdout), done.stderr
    assert '"finish_reason":"stop"' in done.stdout


def test_a_first_page_s_file_is_translated_and_goes_on(server, checkout):
    """Line by line, as it stands. The second command finds all done, and asks nothing again."""
    (commands,) = [block for block in blocks("docs/start.md", "sh") if block.startswith("weft ")]
    (checkout / "in.txt").write_text("we are eating bread\nshe is reading\n")
    environment = os.environ | {"WEFT_TARGET": server.target}
    first, second = commands.splitlines()
    answers = []
    for command in (first, second):
        program = [WEFT, *shlex.split(command)[1:]]
        done = subprocess.run(program, cwd=checkout, env=environment, check=False, capture_output=True, text=True)
        assert 0 == done.returncode, done.stderr
        answers.append((checkout / "out.txt").read_text())

    assert "estamos comiendo pan" == answers[0].splitlines()[0]
    assert 2 == len(answers[0].splitlines())
    assert answers[0] == answers[1]


def test_the_page_of_errors_shows_one(server):
    """As the command says it."""
    ((command, answer),) = shown("docs/errors.md")
    program = [WEFT, *shlex.split(command)[1:], "--target", server.target]
    done = subprocess.run(program, check=False, capture_output=True, text=True)
    assert (2, "", answer) == (done.returncode, done.stdout, done.stderr)


def test_the_page_of_http_shows_what_curl_gets(http_server):
    """Each answer begins as the page has it, up to its dots."""
    (block,) = blocks("docs/http.md", "console")
    asked = re.findall(r"^\$ (curl (?:.*\\\n)*.*)\n((?:(?!\$ ).*\n?)*)", block, re.MULTILINE)
    for command, answer in asked:
        line = command.replace("localhost:8000", http_server)
        done = subprocess.run(["bash", "-c", f"{line} -s"], check=True, capture_output=True, text=True)
        assert done.stdout.startswith(answer.partition("...")[0].rstrip(" ,")), done.stdout
    assert 2 == len(asked)


def test_the_page_of_openai_runs(http_server):
    """Its first program and its curl, as they stand but for the server's address."""
    source, *_ = blocks("docs/openai.md", "python")
    (command,) = typed("docs/openai.md", "curl")
    (said,) = re.findall("# (.*)", source)
    for expected, program in {said: [sys.executable, "-c", source], '"text"': ["bash", "-c", f"{command} -s"]}.items():
        program[-1] = program[-1].replace("localhost:8000", http_server)
        done = subprocess.run(program, check=False, capture_output=True, text=True)
        assert (0, True) == (done.returncode, expected in done.stdout), done.stderr


@pytest.fixture(scope="module")
def http_server(demo_repository):
    """The address of calls by HTTP."""
    with ServerProcess(demo_repository, host="127.0.0.1", api_port=0) as server:
        at = server.wait_for("listening")["api"]
        server.wait_for("ready")
        yield at


def blocks(page, language):
    """A page's blocks of code in a language."""
    return re.findall(rf"^```{language}\n(.*?)^```", (ROOT / page).read_text(), re.MULTILINE | re.DOTALL)


@pytest.mark.slow
def test_the_reading_path_can_be_followed_in_order(all_models, checkout):
    """Each command of the reading path works against one server of every family, and draws its picture."""
    expected, seen = follow("docs/reading-path.md", all_models, checkout)

    assert 9 <= len(expected)
    assert expected == seen
    drawn = {path.name for path in checkout.glob("*.png")}
    assert drawn == {file for command in expected for file in re.findall(r"--explain (\S+)", command)}
    assert drawn <= {path.name for path in (ROOT / "docs/images").iterdir()}


@pytest.mark.long
def test_the_adapter_of_the_reading_path_can_be_made_and_asked(checkout):
    """Its commands export the translator and the adapter beside it; with it and without, answers are those shown."""
    page = (ROOT / "docs/reading-path.md").read_text()
    section = page.partition("\n## 10.")[2].partition("\n## 11.")[0]
    environment = os.environ | {"ORT_DISABLE_TELEMETRY": "1"}
    exports = re.findall(r"^    (weft export.*)$", section, re.MULTILINE)
    for command in exports:
        subprocess.run([WEFT, *shlex.split(command)[1:]], cwd=checkout, env=environment, check=True)
    asked = re.findall(r"^    (weft translate .*\S) {3,}(\S.*)$", section, re.MULTILINE)
    assert (2, 2) == (len(exports), len(asked))
    with ServerProcess(checkout / "build" / "adapted") as server:
        server.wait_for("ready")
        for command, answer in asked:
            program = [WEFT, *shlex.split(command)[1:], "--target", server.target]
            assert f"{answer}\n" == subprocess.run(program, check=True, capture_output=True, text=True).stdout
