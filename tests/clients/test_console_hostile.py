"""The console, in a real Chromium, with what nobody plans for: too much, nothing, what is gone, names that are code."""

import json
import re
import shutil
import subprocess
import threading
from contextlib import contextmanager
from pathlib import Path

import pytest

import weft
from console_form import console_of, given, judged, opened, ran
from driven_page import WHY_NOT
from process import ServerProcess

pytestmark = [pytest.mark.e2e, pytest.mark.long, pytest.mark.skipif(bool(WHY_NOT), reason=WHY_NOT)]
EXAMPLES = Path(__file__).parents[2] / "export" / "checkpoints"
SCENE = EXAMPLES / "scenes/examples/a-large-red-cross-above-a-small-yellow-circle.png"
SOUND = EXAMPLES / "commands/examples/eighty-eight-fifty-five.wav"
HOSTILE = "<img src=x onerror='document.title=1'>"
ALERT = ".answer [role=alert]"


@pytest.fixture(scope="module")
def server(demo_repository, tiny_repository, tmp_path_factory):
    """Models of each kind of input, which an admin can change."""
    repository, points = tmp_path_factory.mktemp("some"), tmp_path_factory.mktemp("points")
    for model in (*(demo_repository / name for name in ("en-es", "scenes", "commands", "pydocs")),
                  tiny_repository / "tiny-embed", tiny_repository / "tiny-match"):  # fmt: skip
        (repository / model.name).symlink_to(model)
    with console_of(repository, points, admin="true", admin_port=0) as server:
        yield server


def refused(page):
    """It has been asked, and says no."""
    page.click(on="button.main")
    page.until(f"document.querySelector('{ALERT}')")
    return page.text(ALERT)


def written(page, text):
    """A text of an expression stands in the form."""
    page.see(what=f"document.querySelector('form.ask textarea').value = {text}")


def test_a_very_long_text_does_not_keep_the_browser_busy(server, page):
    """Of 112,200 tokens the first are drawn, and the number of the others is told."""
    opened(page, server, "en-es", "tokenize")
    written(page, "'a b c! '.repeat(18700)")
    ran(page)

    assert "112200 tokens" == page.text("#said")
    assert 2000 == page.see(what="document.querySelectorAll('.chip').length")
    assert "And 110,200 more, which this page does not draw." == page.text("#said + .quiet")


def test_very_many_texts_do_not_either(server, page):
    """Of 256 the first 64 have cosines."""
    opened(page, server, "tiny-embed", "embed")
    written(page, "Array.from({ length: 256 }, (_, number) => `the cat ${number}`).join('\\n')")
    ran(page)

    assert 64**2 == page.see(what="document.querySelectorAll('.cosine').length")
    assert "And 192 more, which this page does not draw." in page.text(".part")


@pytest.mark.parametrize(
    ("model", "verb", "text", "says"),
    [
        ("en-es", "translate", "'a'.repeat(2 ** 20)", "text is 1048576 characters long"),
        ("tiny-embed", "embed", "'a\\n'.repeat(300)", "256"),
    ],
)
def test_too_much_is_refused_in_the_server_s_words(server, page, model, verb, text, says):
    """The field is marked, and what was written stays."""
    opened(page, server, model, verb)
    written(page, text)
    assert says in refused(page)
    assert "true" == page.see(what="document.querySelector('form.ask textarea').getAttribute('aria-invalid')")
    assert 500 < page.see(what="document.querySelector('form.ask textarea').value.length")


@pytest.mark.parametrize(
    ("model", "verb", "name", "says"),
    [
        ("scenes", "caption", "empty.png", "image.data must not be empty"),
        ("scenes", "caption", "none.png", "image.data"),
        ("scenes", "caption", "none.gif", "image is required"),
        ("commands", "transcribe", "empty.wav", "audio.data must not be empty"),
        ("commands", "transcribe", "none.wav", "audio.data is not a WAV or FLAC file"),
        ("commands", "transcribe", "none.mp3", "audio is required"),
    ],
)
def test_a_file_that_is_none_is_told(server, page, tmp_path, model, verb, name, says):
    """By the browser or by the server, and the field is marked. A good one in its place is taken."""
    (tmp_path / name).write_text("" if name.startswith("empty") else "this is none")
    opened(page, server, model, verb)
    page.upload(on="input[type=file]", files=[str(tmp_path / name)])
    assert says in refused(page)
    assert "true" == page.see(what="document.querySelector('input[type=file]').getAttribute('aria-invalid')")
    page.upload(on="input[type=file]", files=[str(SCENE if verb == "caption" else SOUND)])
    page.until("document.querySelector('.preview').firstChild")
    ran(page)
    assert None is page.text(ALERT)
    judged(page, server)


def test_a_picture_that_is_too_large_is_refused(server, page, tmp_path):
    """The page lives, and says what the server said."""
    (tmp_path / "large.png").write_bytes(SCENE.read_bytes() + bytes(20_000_000))
    opened(page, server, "scenes", "caption")
    page.upload(on="input[type=file]", files=[str(tmp_path / "large.png")])
    assert "MESSAGE_TOO_LARGE" in refused(page)
    given(page, SCENE, {})
    ran(page)
    assert "a large red cross above a small yellow circle" == page.text("#said")


def test_a_picture_is_pasted(server, page):
    """Wherever the focus is. Where a text comes with it, the text is meant."""
    opened(page, server, "scenes", "caption")
    copied = """(async () => {
        const drawn = document.createElement("canvas");
        [drawn.width, drawn.height] = [64, 64];
        const blob = await new Promise((done) => drawn.toBlob(done)), text = new Blob([%s], { type: "text/plain" });
        const all = { "image/png": blob, ...(text.size && { "text/plain": text }) };
        await navigator.clipboard.write([new ClipboardItem(all)]);
    })()"""
    page.allow(names=["clipboard-read", "clipboard-write", "clipboard-sanitized-write"])
    page.see(what=copied % "'a text'")
    page.command(name="Paste")
    page.see(what=copied % "")
    assert None is page.text(".preview img")
    page.command(name="Paste")
    page.until("document.querySelector('.preview img')?.naturalWidth === 64")
    ran(page)
    assert None is page.text(ALERT)
    opened(page, server, "tiny-match", "embed")
    page.allow(names=["clipboard-read", "clipboard-write", "clipboard-sanitized-write"])
    page.see(what=copied % "")
    page.command(name="Paste")
    page.until("document.querySelector('.thumb')?.naturalWidth === 64")


def test_a_file_that_misses_its_place_does_not_replace_the_page(server, page):
    """A browser would open it. A text that is dragged into a field is the browser's own."""
    opened(page, server, "scenes", "caption")
    dropped = """["dragover", "drop"].map((kind) => {
        const dataTransfer = new DataTransfer();
        dataTransfer.items.add(%s);
        const event = new DragEvent(kind, { dataTransfer, bubbles: true, cancelable: true });
        return document.querySelector("h1").dispatchEvent(event);
    })"""
    assert [False, False] == page.see(what=dropped % "new File(['a'], 'a.txt')")
    assert [True, True] == page.see(what=dropped % "'a text', 'text/plain'")


def test_names_that_are_code_are_names(server, page, tmp_path):
    """Of a file and of a label. What is copied runs, and runs nothing else."""
    named = tmp_path / "a'\"$(touch owned)`touch owned`<img src=x onerror=alert(1)>.png"
    shutil.copy(SCENE, named)
    opened(page, server, "tiny-match", "classify")
    given(page, named, {"labels": f"{HOSTILE}\n'; touch owned; '"})
    ran(page)
    assert HOSTILE in page.texts(".bars th")
    assert named.name == page.see(what="document.querySelector('.preview img').alt")
    done = subprocess.run(["bash", "-c", page.text(".code pre")], cwd=tmp_path, capture_output=True, check=True)
    assert HOSTILE in {each["label"] for each in json.loads(done.stdout)["labels"]}
    assert [named.name] == [each.name for each in tmp_path.iterdir()]
    judged(page, server)


def test_back_and_forward_choose_what_was_chosen(server, page):
    """Models, what they are asked, and the state. Whoever is quick ends each call that is under way."""
    opened(page, server, "en-es", "translate")
    for address in ("en-es@1/score", "scenes@1/caption", "state"):
        page.see(what=f"location.hash = '/{address}'")
        page.until("document.querySelector('form.ask, .state')")
    page.until("document.querySelector('.state')")
    for step, title, verb in (("back", "scenes", "caption"), ("back", "en-es", "score"), ("back", "en-es", "translate"),
                              ("forward", "en-es", "score"), ("back", "en-es", "translate")):  # fmt: skip
        # At once, and not when the list of models comes the next time.
        shown = "document.querySelector('[aria-pressed=true]')?.dataset.name"
        went = f"addEventListener('hashchange', () => setTimeout(() => done({shown})), {{ once: true }})"
        assert verb == page.see(what=f"new Promise((done) => {{ {went}; history.{step}(); }})")
        assert (title, f"{title} \u00b7 Weft") == (page.text("h1"), page.see(what="document.title"))
        page.click(on="button.main")
    page.until("document.querySelector('#said')")
    assert ("estamos comiendo pan", 1) == (
        page.text("#said"),
        page.see(what="document.querySelectorAll('main form').length"),
    )
    judged(page, server)


@contextmanager
def asking_for_a_token(demo_repository, tmp_path, page, token, more=""):
    """A server that takes a token, which the page has been given; and its tokens file, which may have more lines."""
    (tmp_path / "models").mkdir()
    (tmp_path / "models" / "en-es").symlink_to(demo_repository / "en-es")
    tokens = tmp_path / "tokens"
    tokens.write_text(f"web call {token}\n{more}")
    tokens.chmod(0o600)
    with ServerProcess(tmp_path / "models", api_port=0, console="true", tokens=tokens) as server:
        server.api = server.wait_for("listening")["api"]
        server.wait_for("ready")
        page.open(url=f"http://{server.api}/")
        page.until("document.querySelector('dialog').open")
        page.write(on="#token", text=token)
        page.press(key="Enter")
        page.until("document.querySelector('form.ask')")
        yield server, tokens


def test_a_token_is_of_one_tab(demo_repository, tmp_path, page):
    """Another one, opened beside it, asks for its own."""
    with asking_for_a_token(demo_repository, tmp_path, page, "token-of-the-caller") as (server, _):
        page.beside(url=f"http://{server.api}/")
        page.until("document.querySelector('dialog').open")
        assert None is page.see(what="sessionStorage.getItem('weft-token')")


def test_two_tabs_have_a_token_each(demo_repository, tmp_path, page):
    """Each asks in its own name, also after the other has asked."""
    first, second = "token-of-the-caller", "token-of-somebody-else"
    with asking_for_a_token(demo_repository, tmp_path, page, first, f"other call,metrics {second}\n") as (server, _):
        page.beside(url=f"http://{server.api}/")
        page.until("document.querySelector('dialog').open")
        page.write(on="#token", text=second)
        page.press(key="Enter")
        page.until("document.querySelector('form.ask') && !document.querySelector('dialog').open")
        ran(page)
        page.first()
        ran(page)
        ran(page)
        assert first == page.see(what="sessionStorage.getItem('weft-token')")
        page.beside(url=f"http://{server.api}/#/state")
        page.until("document.querySelector('dialog').open")
        sent = ["-H", f"authorization: Bearer {second}", f"http://{server.api}/console/metrics"]
        told = subprocess.run(["curl", "-s", *sent], check=True, capture_output=True, text=True).stdout
        asked = re.findall(r'^weft_tenant_requests_total\{model="en-es",tenant="(\w+)"\} (\d)', told, re.MULTILINE)
        assert {("web", "2"), ("other", "1")} == set(asked)


def test_a_model_that_is_gone_leaves_what_it_said(server, page):
    """It is unloaded while it writes: its answer comes whole. Both stay until another one is chosen, and say why."""
    opened(page, server, "pydocs", "generate")
    given(page, None, {"text": "Return a list of"})
    server.say("pydocs.decode", "hold 1")
    page.click(on="button.main")
    server.wait_until(lambda: server.is_held("pydocs.decode"), what="a step")
    with weft.AdminClient(server.wait_for("listening")["admin"], timeout=60) as admin:
        gone = threading.Thread(target=admin.unload_model, args=("pydocs", 1))
        gone.start()
        server.free("pydocs.decode")
        gone.join()
        page.until("!document.querySelector('.models [data-key=\"pydocs@1\"]')")
        page.until("document.querySelector('#said')")
        assert (" tuples.", "Return a list of") == (
            page.text("#said"),
            page.see(what="document.querySelector('form.ask textarea').value"),
        )
        assert page.text("h1 ~ .error").startswith("This model is no longer served.")
        assert "there is no model" in refused(page)
        admin.load_model("pydocs")
    page.until("document.querySelector('h1 ~ .error').hidden")
    ran(page)
    assert " tuples." == page.text("#said")


def test_a_token_that_is_taken_back_is_asked_for_anew(demo_repository, tmp_path, page):
    """While the form is open. What is written stays, and another token goes on with it. A rate is told, too."""
    with asking_for_a_token(demo_repository, tmp_path, page, "token-of-the-first") as (server, tokens):
        given(page, None, {"text": "we are eating bread"})
        tokens.write_text("web call token-of-the-second rate=1/day\n")
        page.until("document.querySelector('dialog').open")
        assert not page.see(what="document.querySelector('dialog .error').hidden")
        page.write(on="#token", text="token-of-the-second")
        page.press(key="Enter")
        page.until("!document.querySelector('dialog').open")
        ran(page)
        assert "estamos comiendo pan" == page.text("#said")
        assert "TENANT_TOKEN_RATE" in refused(page)
        judged(page, server)


def test_ten_thousand_labels_that_are_code_are_few_and_texts(server, page):
    """Of the labels that a model answers with the first hundred are drawn, and the page stays as wide as it is."""
    script = "<script>document.title='owned'</script>" + HOSTILE * 4
    names = [f"{script}{number}" for number in range(10_000)]
    listed = {"name": "many", "version": 1, "task": "TASK_CLASSIFY_TEXT", "state": "MODEL_STATE_READY", "limits": {}}
    opened(page, server, "en-es", "translate", width=360)
    page.answer(path="/weft.v1.ModelService/ListModels", json={"models": [listed | {"labels": names}]})
    labels = [{"label": name, "score": 1e-4} for name in names]
    page.answer(path="/weft.v1.ClassificationService/Classify", json={"labels": labels})
    page.reload()
    page.until("document.querySelector('h1')?.textContent === 'many'")
    given(page, None, {"text": "a"})
    ran(page)

    assert names[:100] == page.texts(".bars th")
    assert "And 9,900 more, which this page does not draw." == page.text(".bars + .quiet")
    assert ("many \u00b7 Weft", 360) == (
        page.see(what="document.title"),
        page.see(what="document.documentElement.scrollWidth"),
    )
    judged(page, server)


def test_a_caption_that_is_code_is_a_text(server, page):
    """While it comes, in the end, and in the code that is copied."""
    opened(page, server, "scenes", "caption")
    page.see(
        what=f"""(() => {{
        const fetched = window.fetch, said = {json.dumps(HOSTILE)}, model = {{ name: said, version: 1 }};
        const enveloped = (flags, message) => {{
            const text = new TextEncoder().encode(JSON.stringify(message)), body = new Uint8Array(5 + text.length);
            body[0] = flags;
            new DataView(body.buffer).setUint32(1, text.length);
            body.set(text, 5);
            return body;
        }};
        const completion = {{ text: said, tokens: [said], tokenLogProbs: [-1], tokenIds: [1],
            topTokens: [{{ tokens: [said], logProbs: [-1] }}] }};
        const parts = [[0, {{ delta: {{ text: said }} }}], [0, {{ final: {{ completion, model }} }}], [2, {{}}]];
        window.fetch = async (url, about) => String(url).includes("StreamCaption")
            ? new Response(new Blob(parts.map((each) => enveloped(...each)))) : await fetched(url, about);
    }})()"""
    )
    given(page, SCENE, {})
    ran(page)
    page.click(on=".chips .chip")
    assert [HOSTILE] * 2 == [page.text("#said"), page.text(".bars th").replace("\u00a0", " ")]
    assert 0 == page.see(what="document.querySelectorAll('img[src=x]').length")
    assert "scenes \u00b7 Weft" == page.see(what="document.title")
    judged(page, server)
