"""What the console gives to copy, in a real Chromium: whatever was set, the code says what the page says."""

import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from console_form import console_of, opened, ran
from driven_page import WHY_NOT
from process import ServerProcess

pytestmark = [pytest.mark.e2e, pytest.mark.long, pytest.mark.skipif(bool(WHY_NOT), reason=WHY_NOT)]
EXAMPLES = Path(__file__).parents[2] / "export" / "checkpoints"
SCENE = EXAMPLES / "scenes/examples/a-large-red-cross-above-a-small-yellow-circle.png"
SOUND = EXAMPLES / "commands/examples/eighty-eight-fifty-five.wav"
PROGRAMS = {"curl": ["bash", "-c"], "python": [sys.executable, "-c"], "openai": [sys.executable, "-c"]}
NONE = "OpenAI's API has no such call."
TEXTS = ("stop", "json_schema", "regex", "Its answer")
SCHEMA = {"type": "object", "properties": {"code": {"enum": ["it's", 'b"', None, True]}}, "required": ["code"]}
# Model, what it is asked, how tokens are chosen, what is set, and whether OpenAI's API has such a call.
WRITTEN = [
    ("en-es", "translate", "sampling", {"temperature": "0.9", "top_k": "12", "top_p": "0.95", "min_p": "0.01",
                                        "seed": "7", "max_new_tokens": "9", "stop": "las\nel '\"$x` \\n"}, True),
    ("en-es", "translate", "beams", {"num_beams": "3", "num_outputs": "2", "length_penalty": "0.4"}, True),
    ("en-es", "translate", "greedy", {"repetition_penalty": "1.2", "min_new_tokens": "2"}, True),
    ("en-es", "translate", "alternatives", {"num_outputs": "3"}, False),
    ("en-es", "translate", "", {"Sentence by sentence": True}, True),
    ("pydocs", "generate", "greedy", {"regex": "[a-z ]{3,20}'\"x", "max_new_tokens": "25"}, True),
    ("pydocs", "generate", "sampling", {"json_schema": json.dumps(SCHEMA), "seed": "3", "max_new_tokens": "30"}, True),
    ("pydocs", "generate", "sampling", {"presence_penalty": "0.5", "frequency_penalty": "0.25", "seed": "3",
                                        "no_repeat_ngram_size": "2", "max_new_tokens": "30"}, True),
    ("commands", "transcribe", "sampling", {"temperature": "0.5", "top_p": "0.9", "seed": "5",
                                            "max_new_tokens": "9"}, True),
    ("commands", "transcribe", "beams", {"num_beams": "3"}, True),
    ("commands", "transcribe", "greedy", {"stop": "fifty", "min_new_tokens": "2"}, False),
    ("commands", "transcribe", "", {"Tell moments": True}, True),
    ("tiny-speech", "transcribe", "", {"Translate to English": True, "max_new_tokens": "8"}, True),
    ("tiny-speech", "transcribe", "", {"Spoken language": 1, "max_new_tokens": "8"}, True),
    ("tiny-speech", "transcribe", "", {"Translate to English": True, "Spoken language": 1,
                                        "max_new_tokens": "8"}, False),
]  # fmt: skip
# Model, what it is asked, its file, and its answer's texts. The answer is not written.
JUDGED = [
    ("scenes", "score", SCENE, {"Its answer": "a large red cross"}),
    ("commands", "score", SOUND, {"Its answer": "eighty eight"}),
    ("tiny-match", "embed", SCENE, {"Texts": ""}),
    ("digits", "classify", EXAMPLES / "digits/examples/3.png", {"How many": "2"}),
]


@pytest.fixture(scope="module")
def server(demo_repository, tiny_repository, tmp_path_factory):
    """Models that write, hear, see and judge."""
    repository, points = tmp_path_factory.mktemp("some"), tmp_path_factory.mktemp("points")
    for name in ("en-es", "pydocs", "scenes", "commands", "digits"):
        (repository / name).symlink_to(demo_repository / name)
    for name in ("tiny-speech", "tiny-match"):
        (repository / name).symlink_to(tiny_repository / name)
    with console_of(repository, points) as server:
        yield server


def chosen(page, label, number, value=None):
    """Of a list, by its place or by its value."""
    page.see(
        what=f"""(() => {{
        const at = [...document.querySelectorAll('.field')].find((each) => each.firstChild.textContent === '{label}');
        const list = at.querySelector('select');
        list.value = {json.dumps(value)} ?? list.options[{number}].value;
        list.dispatchEvent(new Event('change'));
    }})()"""
    )


def filled(page, fields):
    """The settings are open, and each has been set."""
    page.see(what="document.querySelector('.settings').open = true")
    for name, said in fields.items():
        if said is True:
            page.click(on=f"aria/{name}")
        elif isinstance(said, int):
            chosen(page, name, said)
        else:
            page.write(on=f"aria/{name}[role='textbox']" if name in TEXTS else f"aria/{name}", text=said)


def said_elsewhere(page, name, folder):
    """What the code of one way prints where its files are, or None where there is no such call."""
    # Not under the page's head, which stays.
    page.see(what="document.querySelector('.code').scrollIntoView()")
    page.click(on=f".code [data-name={name}]")
    code = page.text(".code pre")
    if code == NONE:
        return None
    done = subprocess.run([*PROGRAMS[name], code], cwd=folder, capture_output=True, text=True, check=False)
    assert 0 == done.returncode, f"{code}\n{done.stderr}"
    return json.loads(done.stdout) if name == "curl" else done.stdout.removesuffix("\n")


@pytest.mark.parametrize(("model", "verb", "strategy", "fields", "is_openai"), WRITTEN)
def test_what_is_set_is_in_the_code(server, page, tmp_path, model, verb, strategy, fields, is_openai):
    """Each way gives the page's answer. What OpenAI's API cannot say is not given as if it could."""
    opened(page, server, model, verb)
    if verb == "transcribe":
        page.upload(on="input[type=file]", files=[str(SOUND)])
        page.until("document.querySelector('.preview').firstChild")
        shutil.copy(SOUND, tmp_path)
    chosen(page, "How tokens are chosen", 0, strategy)
    filled(page, fields)
    ran(page)
    assert None is page.text(".answer .error")
    said = page.text("#said")
    told = said_elsewhere(page, "curl", tmp_path)

    assert said == told["completion"].get("text", "")
    assert {"python": said, "openai": said if is_openai else None} == {
        name: said_elsewhere(page, name, tmp_path) for name in ("python", "openai")
    }


@pytest.mark.parametrize(("model", "verb", "file", "fields"), JUDGED)
def test_what_is_judged_is_judged_elsewhere(server, page, tmp_path, model, verb, file, fields):
    """With its file, which each program reads."""
    opened(page, server, model, verb)
    page.upload(on="input[type=file]", files=[str(file)])
    shutil.copy(file, tmp_path)
    for name, text in fields.items():
        page.write(on=f"aria/{name}", text=text)
    ran(page)

    assert None is page.text(".answer .error")
    told = said_elsewhere(page, "curl", tmp_path)
    assert {"score": "total", "embed": "embeddings", "classify": "labels"}[verb] in told
    assert said_elsewhere(page, "python", tmp_path)
    assert None is said_elsewhere(page, "openai", tmp_path)
    if verb == "classify":
        assert 2 == len(told["labels"]) == len(page.texts(".bars th"))


def test_the_code_has_the_token_of_who_runs_it(demo_repository, tmp_path, page, monkeypatch):
    """Of WEFT_TOKEN, in each way. Without it each is refused."""
    (tmp_path / "models").mkdir()
    (tmp_path / "models" / "en-es").symlink_to(demo_repository / "en-es")
    tokens, token = tmp_path / "tokens", "a-token-of-the-caller"
    tokens.write_text(f"web call {token}\n")
    tokens.chmod(0o600)
    with ServerProcess(tmp_path / "models", api_port=0, console="true", tokens=tokens) as server:
        server.api = server.wait_for("listening")["api"]
        server.wait_for("ready")
        page.open(url=f"http://{server.api}/")
        page.until("document.querySelector('dialog').open")
        page.write(on="#token", text=token)
        page.press(key="Enter")
        page.until("document.querySelector('form.ask') && !document.querySelector('dialog').open")
        ran(page)
        monkeypatch.setenv("WEFT_TOKEN", token)
        assert "estamos comiendo pan" == said_elsewhere(page, "curl", tmp_path)["completion"]["text"]
        assert ["estamos comiendo pan"] * 2 == [said_elsewhere(page, name, tmp_path) for name in ("python", "openai")]
        monkeypatch.setenv("WEFT_TOKEN", "not-the-token-of-anybody")
        assert "unauthenticated" == said_elsewhere(page, "curl", tmp_path)["code"]
        for name in ("python", "openai"):
            with pytest.raises(AssertionError, match="does not know the token"):
                said_elsewhere(page, name, tmp_path)


def test_a_recording_has_one_answer(server, page):
    """The server refuses more. So the form does not ask how many."""
    labels = "[...document.querySelectorAll('.settings label')].map((each) => each.textContent)"
    for model, verb, has_number in (("commands", "transcribe", False), ("en-es", "translate", True)):
        opened(page, server, model, verb)
        assert has_number is ("num_outputs" in page.see(what=labels))
