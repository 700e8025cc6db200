"""The console in a real Chromium, on real models: each task, its attention, and what befalls a page."""

import json
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from console_form import console_of, given, judged, opened, ran
from driven_page import WHY_NOT
from envoy import free_port
from process import ServerProcess

pytestmark = [pytest.mark.e2e, pytest.mark.long, pytest.mark.skipif(bool(WHY_NOT), reason=WHY_NOT)]
EXAMPLES = Path(__file__).parents[2] / "export" / "checkpoints"
TINY = ("tiny-embed", "tiny-colbert", "tiny-extract", "tiny-masks", "tiny-generate", "tiny-match")
SCENE = EXAMPLES / "scenes/examples/a-large-red-cross-above-a-small-yellow-circle.png"
SHAPES = EXAMPLES / "scenes-answers/examples/green-square-purple-triangle.png"
SOUND = EXAMPLES / "commands/examples/eighty-eight-fifty-five.wav"
DIGIT = EXAMPLES / "digits/examples/3.png"
PROGRAMS = {"curl": ["bash", "-c"], "python": [sys.executable, "-c"], "openai": [sys.executable, "-c"]}
SECRET = "a-token-of-the-caller"

# Model, what is asked, its file, what is written into which field, and what the answer says.
TASKS = [
    ("en-es", "translate", None, {}, "estamos comiendo pan"),
    ("en-es", "score", None, {}, "Log-probability of the whole: 0.000"),
    ("en-es", "tokenize", None, {}, "5 tokens"),
    ("pydocs", "generate", None, {}, " tuples."),
    ("scenes", "caption", SCENE, {}, "a large red cross above a small yellow circle"),
    ("scenes-answers", "answer", SHAPES, {"question": "what is left of the purple triangle?"}, None),
    ("digits", "classify", DIGIT, {}, "3"),
    ("topics", "classify", None, {}, "networking"),
    ("tags", "tag", None, {}, "Maria SilvaPERSON sent 25 eurosMONEY to LisbonPLACE on MondayDATE."),
    ("commands", "transcribe", SOUND, {}, "eighty eight fifty five"),
    ("tiny-match", "classify", SCENE, {"labels": "cat\ndog"}, None),
    ("tiny-generate", "chat", None, {"turns": "the cat"}, None),
    ("tiny-extract", "extract", None, {}, "Maria Silva sent 25 euros to Lisbon on Monday."),
    ("tiny-masks", "fill", None, {"text": "the [UNKNOWN] house"}, None),
    ("tiny-embed", "embed", None, {}, None),
    ("tiny-match", "embed", None, {}, None),
    ("tiny-colbert", "embed", None, {}, None),
    ("tiny-colbert", "score", None, {}, None),
]


@pytest.fixture(scope="module")
def repository(demo_repository, tiny_repository, tmp_path_factory):
    """The demo models, and random ones for the tasks that these do not have."""
    repository = tmp_path_factory.mktemp("all")
    for model in (*demo_repository.iterdir(), *(tiny_repository / name for name in TINY)):
        (repository / model.name).symlink_to(model)
    return repository


@pytest.fixture(scope="module")
def server(repository, tmp_path_factory):
    """They are served, with a console."""
    points = tmp_path_factory.mktemp("points")
    with console_of(repository, points, max_restarts=100, prefix_cache_mb=8) as server:
        yield server


@pytest.mark.parametrize(("model", "verb", "file", "fields", "expected"), TASKS)
def test_each_task_is_asked_and_its_code_runs(server, page, tmp_path, model, verb, file, fields, expected):
    """The page says what the model says. What it gives to copy, in each of three ways, says the same elsewhere."""
    opened(page, server, model, verb)
    given(page, file, fields)
    ran(page)
    said = page.text("#said")
    codes = {}
    for name in PROGRAMS:
        page.click(on=f".code [data-name={name}]")
        codes[name] = page.text(".code pre")

    assert None is page.text(".answer .error")
    assert said == (expected or said)
    judged(page, server)
    if file:
        shutil.copy(file, tmp_path)
    for name, code in codes.items():
        if code == "OpenAI's API has no such call.":
            assert "openai" == name
            assert verb in {"score", "tokenize", "classify", "tag", "extract", "fill"}
            continue
        done = subprocess.run([*PROGRAMS[name], code], cwd=tmp_path, capture_output=True, text=True, check=False)
        assert 0 == done.returncode, f"{code}\n{done.stderr}"
        printed = json.loads(done.stdout) if name == "curl" else done.stdout
        if name == "curl":
            assert "model" in printed or "completion" in printed, printed
        if verb in {"translate", "generate", "caption", "answer", "transcribe", "chat"}:
            assert said == (printed["completion"]["text"] if name == "curl" else printed.removesuffix("\n"))


def test_a_text_s_attention_lights_up_both_ways(server, page):
    """By keyboard or pointer: a word of the answer lights what it read, and what was read lights its words."""
    opened(page, server, "en-es", "translate")
    ran(page)
    read, wrote = ".chips.source .chip", ".chips:not(.source) .chip"

    assert ["we", "are", "eating", "bread", "<end>"] == page.texts(read)
    page.focus(on=f"{wrote}:nth-child(2)")
    assert ["eating"] == page.lit(read)
    page.hover(on=f"{read}:nth-child(4)")
    assert ["pan"] == page.lit(wrote)
    page.click(on=f"{wrote}:nth-child(3)")
    (first, *others) = page.texts(".alternatives th")
    assert ("pan", 4) == (first, len(others))


def test_what_a_token_of_a_query_met_lights_up(server, page):
    """Each has the token of the document and their product below it, and the sum of these is how well they match."""
    opened(page, server, "tiny-colbert", "score")
    ran(page)
    lit = "[...document.querySelectorAll('.answer .source .chip.lit')].map((each) => each.textContent)"
    chips = page.see(
        what="[...document.querySelectorAll('.answer .labelled .chip')].map((each) => each.lastChild.textContent)"
    )
    total = float(page.text("#said").rpartition(" ")[2])

    assert [] == page.see(what=lit)
    assert pytest.approx(total, abs=0.005 * len(chips)) == sum(float(each.rpartition(" ")[2]) for each in chips)
    page.see(what="document.querySelector('.answer .labelled .chip').focus()")
    assert [chips[0].rpartition(" ")[0]] == page.see(what=lit)
    judged(page, server)


def test_what_else_might_stand_in_a_scored_answer_is_told(server, page):
    """A click on a token of it lists the five most probable ones of its place, as of an answer that was written."""
    opened(page, server, "en-es", "score")
    ran(page)
    page.click(on=".chips .chip:nth-child(3)")
    (first, *others) = page.texts(".alternatives th")
    assert ("pan", 4) == (first, len(others))


@pytest.mark.parametrize(
    ("model", "verb", "title", "hint"),
    [
        ("topics", "classify", "What it answered", "The more it looked at a token, the more that is lit."),
        ("tags", "tag", "For each token", "Point at a token: what it looked at lights up. And back."),
    ],
)
def test_the_page_says_what_the_rows_of_attention_are(server, page, model, verb, title, hint):
    """Of one label all is lit at once, so there is nothing to point at. A tagger writes nothing."""
    opened(page, server, model, verb)
    ran(page)
    assert ["What it read", title] == page.texts(".part h4")
    assert hint == page.text(".part:has(h4) .quiet")


def test_a_picture_s_attention_is_drawn_on_it(server, page):
    """A word lets what it looked at stay bright. A place of the picture lights the words that looked there."""
    opened(page, server, "scenes", "caption")
    given(page, SCENE, {})
    ran(page)
    wrote = ".chips .chip"
    bright = (
        "(() => { const c = document.querySelector('.heat'), at = (x, y) => c.getContext('2d')"
        ".getImageData(x * c.width, y * c.height, 1, 1).data[3]; return [at(0.63, 0.46), at(0.79, 0.82)]; })()"
    )
    shades = {}
    for word in ("cross", "circle"):
        page.hover(on=f"{wrote}:nth-child({page.texts(wrote).index(word) + 1})")
        shades[word] = page.see(what=bright)

    assert shades["cross"][0] < shades["cross"][1]
    assert shades["circle"][0] > shades["circle"][1]
    page.point(on=".seen", x=0.79, y=0.82)
    assert "circle" in page.lit(wrote)
    assert "cross" not in page.lit(wrote)


def test_a_word_of_a_recording_is_heard(server, page):
    """A click plays the moment in which it was said, and ends with it."""
    opened(page, server, "commands", "transcribe")
    given(page, SOUND, {})
    ran(page)
    page.until("document.querySelector('.heard audio').readyState > 2")
    page.click(on=".chips .chip:nth-child(3)")
    page.until(
        "document.querySelector('.heard audio').paused && document.querySelector('.heard audio').currentTime > 1"
    )

    at = page.see(what="document.querySelector('.heard audio').currentTime")
    assert 1.5 < at < 2.3
    page.point(on=".wave", x=0.6, y=0.5)
    assert ["fifty"] == page.lit(".chips .chip")


def test_a_layer_and_a_head_are_chosen(server, page):
    """The question is asked again for them, and the code names them."""
    opened(page, server, "en-es", "translate")
    ran(page)
    page.see(what="document.querySelector('.settings').open = true")
    for label, value in (("Layer", "0"), ("Head", "2")):
        page.see(what=f"[...document.querySelectorAll('.field')].find((e) => e.firstChild.textContent === '{label}')"
                 f".querySelector('select').value = '{value}'")  # fmt: skip
        page.see(what=f"[...document.querySelectorAll('.field')].find((e) => e.firstChild.textContent === '{label}')"
                 ".querySelector('select').dispatchEvent(new Event('change'))")  # fmt: skip
    page.until('document.querySelector(\'.code pre\')?.textContent.includes(\'"explain":{"layer":0,"head":2}\')')


def test_a_number_outside_its_range_is_blamed(server, page):
    """The server says which field is wrong, and the page shows it there."""
    opened(page, server, "en-es", "translate")
    page.see(what="document.querySelector('.settings').open = true")
    page.write(on="aria/max_new_tokens", text="1000000")
    page.click(on="button.main")
    page.until("document.querySelector('.answer [role=alert]')")

    assert "Field: decoding.max_new_tokens" in page.text(".answer [role=alert]")
    assert ["max_new_tokens"] == page.see(
        what="[...document.querySelectorAll('[aria-invalid=true]')].map((each) => each.labels[0].textContent)"
    )
    judged(page, server)


def test_a_stream_that_is_stopped_frees_its_slot(server, page):
    """In the middle of an answer. What came stays, and the next answer is whole."""
    server.say("pydocs.decode", "hold 1")
    opened(page, server, "pydocs", "generate")
    page.click(on="button.main")
    server.wait_until(lambda: server.is_held("pydocs.decode"), what="a step")
    page.until("document.querySelector('.coming').textContent")
    came = page.text(".coming")
    page.click(on=".ask button:nth-child(2):not(.tabs *)")
    page.until("document.querySelector('.ask [role=status]:last-child').textContent.startsWith('Stopped')")
    # An answer is short: a step that went on at once might end it before the server hears that nobody waits.
    server.wait_until(lambda: server.ended("pydocs")["CANCELLED"], what="a cancelled call")
    server.free("pydocs.decode")
    server.wait_until(lambda: not server.metric("weft_decode_slots_used"), what="a free slot")

    assert (came, []) == (page.text(".said"), page.texts(".coming"))
    ran(page)
    assert " tuples." == page.text("#said")


def test_the_page_outlives_its_server(demo_repository, tmp_path, page):
    """While there is none it says so. Once there is one again, it goes on by itself."""
    (tmp_path / "en-es").symlink_to(demo_repository / "en-es")
    port = free_port()
    with ServerProcess(tmp_path, api_port=port, console="true") as server:
        server.api = f"localhost:{port}"
        server.wait_for("ready")
        opened(page, server, "en-es", "translate")
    page.until("!document.querySelector('.banner').hidden")
    page.click(on="button.main")
    page.until("document.querySelector('.answer [role=alert]')")
    assert "does not answer" in page.text(".answer [role=alert]")
    with ServerProcess(tmp_path, api_port=port, console="true") as server:
        server.wait_for("ready")
        page.until("document.querySelector('.banner').hidden")
        page.click(on="button.main")
        page.until("document.querySelector('#said')")
        assert "estamos comiendo pan" == page.text("#said")


def test_a_token_is_asked_for_once_and_stays_in_the_tab(demo_repository, tmp_path, page):
    """A wrong one is told. The right one goes with each call, and stands in no code that is copied."""
    (tmp_path / "models").mkdir()
    (tmp_path / "models" / "en-es").symlink_to(demo_repository / "en-es")
    tokens = tmp_path / "tokens"
    tokens.write_text(f"web call {SECRET}\n")
    tokens.chmod(0o600)
    with ServerProcess(tmp_path / "models", api_port=0, console="true", tokens=tokens) as server:
        server.api = server.wait_for("listening")["api"]
        server.wait_for("ready")
        page.open(url=f"http://{server.api}/")
        page.until("document.querySelector('dialog').open")
        assert ([], []) == (page.axe(), page.texts(".models a"))
        page.write(on="#token", text="not-the-token-of-anybody")
        page.press(key="Enter")
        page.until("!document.querySelector('dialog .error').hidden")
        page.write(on="#token", text=SECRET)
        page.press(key="Enter")
        page.until("document.querySelector('form.ask') && !document.querySelector('dialog').open")
        ran(page)
        shown = page.see(what="document.documentElement.outerHTML")
        page.reload()
        page.until("document.querySelector('form.ask')")

        assert "$WEFT_TOKEN" in shown
        assert SECRET not in shown
        assert (SECRET, 0) == (page.see(what="sessionStorage['weft-token']"), page.see(what="localStorage.length"))
        judged(page, server)


HOSTILE = '<img src=x onerror="document.title=1"><script>document.title=2</script>'


def test_the_state_follows_the_metrics(server, page):
    """A row for each model, with rates and times once it is asked, and what was refused by its reason."""
    page.open(url=f"http://{server.api}/#/state")
    page.until("document.querySelector('.state')")
    row = "[...document.querySelectorAll('.state tbody tr')].find((each) => each.textContent.startsWith('en-es'))"
    columns = page.texts(".state thead th")
    assert "0.0" == page.see(what=f"{row}.children[{columns.index('Tokens/s')}].textContent")
    size = float(page.see(what=f"{row}.children[{columns.index('Size')}].textContent").removesuffix(" MB"))
    files = (EXAMPLES.parents[1] / "build/models/en-es/1").iterdir()
    assert pytest.approx(sum(path.stat().st_size for path in files) / 1e6, rel=0.1) == size
    assert "\u2013" == page.see(what=f"{row}.children[{columns.index('First token')}].textContent")
    for text in ("we are eating bread", "the old women are not buying cheap apples", ""):
        body = json.dumps({"text": text})
        asked = ["curl", "-s", "-o", "/dev/null", "-H", "content-type: application/json", "-d", body]
        subprocess.run([*asked, f"http://{server.api}/weft.v1.TranslationService/Translate"], check=True)
    page.until(f"/ms|s/.test({row}.children[{columns.index('First token')}].textContent)")
    page.until(f"Number({row}.children[{columns.index('Tokens/s')}].textContent) > 0")

    for model, expected in (("topics", "\u2013"), ("pydocs", r"\d+% / \d+%")):
        cells = (
            f"[...document.querySelectorAll('.state tbody tr')].find((each) => each.textContent.startsWith('{model}'))"
        )
        assert re.fullmatch(expected, page.see(what=f"{cells}.children[{columns.index('Cache')}].textContent"))
    assert "EMPTY_INPUT en-es1" in page.texts(".outputs li")
    assert f"en-es 1{'ready':>6}" == page.see(what=f"{row}.children[0].textContent + {row}.children[1].textContent")
    assert [] == page.axe()
    page.click(on=".state tbody a")
    page.until("document.querySelector('form.ask')")


def test_hostile_texts_are_texts(server, page):
    """Whoever says them: a caller, a label, a model's name and description, an answer."""
    opened(page, server, "tags", "tag")
    given(page, None, {"text": HOSTILE})
    ran(page)
    assert HOSTILE == page.see(
        what="[...document.querySelector('#said').childNodes].map((e) => e.firstChild?.data ?? e.data).join('')"
    )
    opened(page, server, "en-es", "translate")
    page.answer(
        path="/weft.v1.ModelService/ListModels",
        json={
            "models": [
                {"name": HOSTILE, "version": 1, "task": "TASK_CLASSIFY_TEXT", "state": HOSTILE, "description": HOSTILE,
                 "error": HOSTILE, "canExplain": True}
            ]
        },
    )  # fmt: skip
    answer = {
        "labels": [{"label": HOSTILE, "score": 1}],
        "model": {"name": HOSTILE},
        "alignment": {"targetTokens": [HOSTILE], "sourceTokens": [HOSTILE], "weights": [1]},
    }
    page.answer(path="/weft.v1.ClassificationService/Classify", json=answer)
    page.reload()
    page.until("document.querySelector('h1')?.textContent.includes('onerror')")
    ran(page)

    assert [HOSTILE] * 3 == [page.text("h1"), page.text("#said"), page.text(".models a span:nth-child(2)")]
    assert 0 == page.see(what="document.querySelectorAll('main script, img[src=x], nav script').length")
    assert f"{HOSTILE} · Weft" == page.see(what="document.title")


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [360, 768, 1280, 2560])
def test_it_fits_each_width(server, page, width, scheme):
    """From a telephone to a wide screen nothing is cut off, and each text has contrast."""
    for model, verb, file in (("en-es", "translate", None), ("scenes", "caption", SCENE), ("tags", "tag", None)):
        opened(page, server, model, verb, width=width, scheme=scheme)
        given(page, file, {})
        page.see(what="document.querySelector('.settings').open = true")
        ran(page)
        assert width >= page.see(what="document.documentElement.scrollWidth")
        assert [] == page.axe()


def test_a_picture_is_drawn(server, page):
    """By the pointer, on a sheet of the page. What is asked about is what is on the sheet."""
    opened(page, server, "scenes", "caption")
    page.click(on="aria/Draw one")
    page.click(on="aria/Light sheet")
    page.click(on="aria/red")
    rows = [0.3 + 0.05 * number for number in range(9)]
    page.drag(on=".pad", points=[[x, y] for y in rows for x in (0.3, 0.7)])
    ran(page)
    assert " red " in page.text("#said")


def test_a_chat_goes_on(server, page):
    """The next message has what was said before."""
    opened(page, server, "tiny-generate", "chat")
    page.see(what="document.querySelector('.settings').open = true")
    page.write(on="aria/max_new_tokens", text="2")
    for number in (1, 2):
        given(page, None, {"turns": "the"})
        ran(page)
        page.until(f"document.querySelectorAll('.chat li').length === {2 * number}")
    turns = re.findall(r'"role":"(\w+)"', page.text(".code pre"))
    assert ["user", "assistant", "user"] == turns
