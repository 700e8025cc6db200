"""Who types what client/README.md shows gets an answer: its commands, and its Python as it stands."""

import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from shown_code import blocks, typed

ROOT = Path(__file__).parents[2]
PAGE = "client/README.md"
WEFT = str(Path(sys.executable).with_name("weft"))
# What is not typed here, by how it begins, and why.
NOT_TYPED = {
    "weft classify --model toxic": "no demo model has labels that are true at once",
    "weft classify photo.jpg --model clip": "no demo model takes labels of a request",
    "weft classify --model judge": "no demo model judges pairs",
    "weft extract": "no demo model extracts",
    "weft fill-mask": "no demo model fills masks",
    "weft embed": "no demo model embeds",
    'weft score "what is a cat?"': "no demo model has a vector for each token",
    'weft translate "do you have your book?" --adapter': "no demo model has adapters; test_pages.py makes one",
    "weft models swap": "for administrators; test_models_on_the_fly.py does it",
    "weft models load": "for administrators; test_models_on_the_fly.py does it",
    "weft models label": "for administrators; test_models_on_the_fly.py does it",
    "weft models unload": "for administrators; test_models_on_the_fly.py does it",
}
# The same of blocks of Python.
NOT_RUN = {
    'schema = {"type"': "the demo's generator was not trained to write JSON; tests/server/test_constrained.py does it",
    "answers = client.classify_many(pairs=": "no demo model judges pairs",
    'print(client.get_model("en-es").adapters)': "no demo model has adapters",
    'client.translate("The cat eats."': "no demo model has languages to choose",
    'from pathlib import Path\n\nasked = {"role"': "no demo model sees; tests/client/test_picture_plot.py draws it",
    "with weft.AdminClient(": "for administrators; test_models_on_the_fly.py does it",
}
# What the page calls a file, and what it is here.
FILES = {
    "digit.png": "digits/examples/7.png",
    "scene.png": "scenes/examples/a-large-purple-circle-on-the-left.png",
    "speech.wav": "commands/examples/eighty-eight-fifty-five.wav",
    # It goes by what is in it, and not by its name.
    "speech.flac": "commands/examples/eighty-eight-fifty-five.wav",
}
TEXTS = {
    "in.txt": "we are eating bread\nshe is reading\n",
    "in.jsonl": '{"text": "Open a file and", "id": 1}\n',
    "paths-of-pictures.txt": "scene.png\n",
    "pairs.tsv": "we are eating bread\testamos comiendo pan\n",
}

pytestmark = pytest.mark.e2e


@pytest.fixture
def folder(tmp_path):
    """A folder with the files that the page names."""
    for name, example in FILES.items():
        (tmp_path / name).symlink_to(ROOT / "export" / "checkpoints" / example)
    for name, text in TEXTS.items():
        (tmp_path / name).write_text(text)
    return tmp_path


def left_out(source, reasons):
    """Whether there is a reason not to run it."""
    return any(source.startswith(begin) for begin in reasons)


def test_each_command_is_answered(server, folder):
    """It ends with 0. The files that it is to write are there."""
    environment = os.environ | {"WEFT_TARGET": server.target}
    lines = [line for line in typed(PAGE, "weft") if not left_out(line, NOT_TYPED)]
    expected = dict.fromkeys(lines, (0, True, ""))
    actual = {}
    for line in lines:
        command = [WEFT, *shlex.split(line, comments=True)[1:]]
        done = subprocess.run(command, cwd=folder, env=environment, check=False, capture_output=True, text=True)
        told = done.stdout or "--out" in line
        # What is beside an answer, such as other tokens, goes to stderr too.
        actual[line] = (done.returncode, bool(told), done.stderr if done.returncode else "")

    assert len(lines) >= 18
    assert expected == actual
    assert {"out.txt", "out.jsonl", "captions.txt", "scores.txt"} <= {path.name for path in folder.iterdir()}


def test_each_block_of_python_runs(server, folder):
    """All in one program, in their order, as the page is read."""
    shown = [block for block in blocks(PAGE, "python") if not left_out(block, NOT_RUN)]
    head = f'import weft\nclient = weft.Client("{server.target}")\n'
    source = head + "\n".join(re.sub("localhost:7070", server.target, block) for block in _apart(shown, server.target))
    done = subprocess.run([sys.executable, "-c", source], cwd=folder, check=False, capture_output=True, text=True)

    assert len(shown) >= 8
    assert (0, "") == (done.returncode, done.stderr)
    assert done.stdout.startswith("estamos comiendo pan\n7 ")
    assert {"out.png", "words.png"} <= {path.name for path in folder.iterdir()}


def _apart(shown, target):
    """The blocks, with a client anew behind one that closes its own."""
    for block in shown:
        yield block
        if "as client:" in block:
            yield f'client = weft.Client("{target}")\n'


@pytest.mark.parametrize(("reasons", "shown"), [(NOT_TYPED, "typed"), (NOT_RUN, "run")])
def test_each_reason_is_for_something_on_the_page(reasons, shown):
    """What is gone from the page has no reason any more."""
    sources = list(typed(PAGE, "weft") if shown == "typed" else blocks(PAGE, "python"))
    assert [] == [begin for begin in reasons if not any(source.startswith(begin) for source in sources)]
