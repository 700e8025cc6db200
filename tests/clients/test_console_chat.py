"""The console's chat with a model that takes pictures, in a real Chromium."""

import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from console_form import console_of, given, judged, opened, ran
from driven_page import WHY_NOT

pytestmark = [pytest.mark.e2e, pytest.mark.long, pytest.mark.skipif(bool(WHY_NOT), reason=WHY_NOT)]
EXAMPLES = Path(__file__).parents[2] / "export" / "checkpoints"
SCENE = EXAMPLES / "scenes/examples/a-large-red-cross-above-a-small-yellow-circle.png"
OTHER = EXAMPLES / "scenes-answers/examples/green-square-purple-triangle.png"
PROGRAMS = {"curl": ["bash", "-c"], "python": [sys.executable, "-c"], "openai": [sys.executable, "-c"]}


@pytest.fixture(scope="module")
def server(tiny_repository, tmp_path_factory):
    """A model that takes pictures in its messages, and one that does not."""
    repository, points = tmp_path_factory.mktemp("talks"), tmp_path_factory.mktemp("points")
    for name in ("tiny-llava", "tiny-generate"):
        (repository / name).symlink_to(tiny_repository / name)
    with console_of(repository, points) as server:
        yield server


def said_elsewhere(page, name, folder):
    """What the code says that is copied in one of three ways, where its files are."""
    page.click(on=f".code [data-name={name}]")
    code = page.text(".code pre")
    done = subprocess.run([*PROGRAMS[name], code], cwd=folder, capture_output=True, text=True, check=False)
    assert 0 == done.returncode, f"{code}\n{done.stderr}"
    return json.loads(done.stdout)["completion"].get("text", "") if name == "curl" else done.stdout.removesuffix("\n")


def test_a_message_may_have_a_picture(server, page, tmp_path):
    """It goes with the message, and stays in the talk. What is copied has each picture of it, in the same order."""
    opened(page, server, "tiny-llava", "chat")
    page.see(what="document.querySelector('.settings').open = true")
    page.write(on="aria/max_new_tokens", text="2")
    for number, file in enumerate((SCENE, OTHER), 1):
        given(page, file, {"turns": "a"})
        ran(page)
        assert None is page.text(".answer .error")
        page.until(f"document.querySelectorAll('.chat li').length === {2 * number}")
        assert None is page.text(".preview img")
    for file in (SCENE, OTHER):
        shutil.copy(file, tmp_path)
    said = page.text("#said")

    names = "[...document.querySelectorAll('.chat img')].map((each) => [each.alt, each.naturalWidth > 0])"
    assert [[SCENE.name, True], [OTHER.name, True]] == page.see(what=names)
    assert dict.fromkeys(PROGRAMS, said) == {name: said_elsewhere(page, name, tmp_path) for name in PROGRAMS}
    judged(page, server)
    page.click(on="aria/Begin anew")
    assert 0 == page.see(what="document.querySelectorAll('.chat li').length")


def test_a_picture_alone_is_a_message(server, page):
    """No text has to stand beside it."""
    opened(page, server, "tiny-llava", "chat")
    given(page, SCENE, {})
    ran(page)
    assert None is page.text(".answer .error")


def test_where_a_model_takes_none_none_is_asked_for(server, page):
    """The form has no place for it."""
    opened(page, server, "tiny-generate", "chat")
    assert 0 == page.see(what="document.querySelectorAll('form.ask [type=file]').length")
