"""The console in a real Chromium when something goes wrong or changes: what is written and said stays."""

import ast
import json
from pathlib import Path

import pytest

from console_form import console_of, given, judged, opened, ran
from driven_page import WHY_NOT
from process import ServerProcess

pytestmark = [pytest.mark.e2e, pytest.mark.long, pytest.mark.skipif(bool(WHY_NOT), reason=WHY_NOT)]
SCENE = (
    Path(__file__).parents[2] / "export/checkpoints/scenes/examples/a-large-red-cross-above-a-small-yellow-circle.png"
)
LIST = "/weft.v1.ModelService/ListModels"
ASKED = f"fetch('{LIST}', {{method: 'POST', headers: {{'content-type': 'application/json'}}, body: '{{}}'}})"
FREE = "!document.querySelector('button.main').disabled"
TURNS = "[...document.querySelectorAll('.chat li')].map((each) => each.textContent)"


@pytest.fixture(scope="module")
def server(demo_repository, tiny_repository, tmp_path_factory):
    """Some models with a console."""
    repository, points = tmp_path_factory.mktemp("some"), tmp_path_factory.mktemp("points")
    for model in (demo_repository / "en-es", demo_repository / "scenes", tiny_repository / "tiny-generate"):
        (repository / model.name).symlink_to(model)
    (repository / "tiny-match").symlink_to(tiny_repository / "tiny-match")
    with console_of(repository, points) as server:
        yield server


def listed(page, name, **changed):
    """The list of models says something else of one of them."""
    models = page.see(what=f"{ASKED}.then((got) => got.json())")["models"]
    models = [each | changed if each["name"] == name else each for each in models]
    page.answer(path=LIST, json={"models": models})


def chosen(page, label, value):
    """A setting is chosen."""
    page.see(
        what=f"""(() => {{
        const at = [...document.querySelectorAll('.field')].find((each) => each.firstChild.textContent === '{label}');
        at.querySelector('select').value = '{value}';
        at.querySelector('select').dispatchEvent(new Event('change'));
    }})()"""
    )


def test_a_refusal_of_the_list_leaves_the_form(server, page):
    """The banner says what the server said, and goes when it answers again."""
    opened(page, server, "en-es", "translate")
    given(page, None, {"text": "bread"})
    page.answer(path=LIST, status=503, json={"code": "unavailable", "message": "it drains"})
    page.until("!document.querySelector('.banner').hidden")
    assert "Something went wrong: it drains" == page.text(".banner")
    page.answer(path=LIST)
    page.until("document.querySelector('.banner').hidden")

    assert "bread" == page.see(what="document.querySelector('form.ask textarea').value")
    judged(page, server)


@pytest.mark.parametrize("address", ["#/en-es@1/translate", "#/"])
def test_a_model_that_falls_asleep_keeps_its_answer(server, page, address):
    """Its state stands in the list and its error above the form. The form is the same one, whoever chose the model."""
    opened(page, server, "en-es", "translate")
    page.see(what=f"location.hash = '{address}'")
    page.until("document.querySelector('form.ask')")
    ran(page)
    page.see(what="document.querySelector('form.ask').id = 'mine'")
    listed(page, "en-es", state="MODEL_STATE_SLEEPING", error="it could not wake")
    page.until("document.querySelector('.models a[aria-current] small')?.textContent === 'sleeping'")

    assert ("estamos comiendo pan", "it could not wake") == (
        page.text("#mine + .answer #said"),
        page.text("h1 ~ .error"),
    )


def test_a_model_that_loads_gets_its_form_once_it_has_told_what_it_takes(server, page):
    """Until then nothing is known of it but its name and task."""
    opened(page, server, "tiny-generate", "generate")
    bare = {"name": "tiny-generate", "version": 1, "task": "TASK_GENERATE", "state": "MODEL_STATE_LOADING"}
    page.answer(path=LIST, json={"models": [bare]})
    page.reload()
    page.until("document.querySelector('form.ask')")
    assert None is page.text(".tabs [data-name=chat]")
    page.answer(path=LIST)
    page.until("document.querySelector('.tabs [data-name=chat]')")


def test_leaving_a_form_ends_its_call(server, page):
    """It is counted as cancelled while its step still stands: the answer cannot have come first."""
    cancelled = server.ended("tiny-generate")["CANCELLED"]
    server.say("tiny-generate.decode", "hold 1")
    opened(page, server, "tiny-generate", "generate")
    page.click(on="button.main")
    server.wait_until(lambda: server.is_held("tiny-generate.decode"), what="a step")
    page.click(on=".tabs [data-name=tokenize]")
    page.until("document.querySelector('[aria-pressed=true][data-name=tokenize]')")
    server.wait_until(lambda: server.ended("tiny-generate")["CANCELLED"] == cancelled + 1, what="a cancelled call")
    server.free("tiny-generate.decode")


@pytest.mark.parametrize(("model", "verb", "file"), [("scenes", "caption", SCENE), ("tiny-match", "embed", SCENE)])
def test_a_form_that_goes_frees_its_files(server, page, model, verb, file):
    """Each URL of a file is revoked: that of the form, and that of the answer."""
    opened(page, server, model, verb)
    page.see(
        what="""(() => {
        const make = URL.createObjectURL, end = URL.revokeObjectURL;
        window.urls = new Set();
        URL.createObjectURL = (blob) => { const url = make.call(URL, blob); window.urls.add(url); return url; };
        URL.revokeObjectURL = (url) => { window.urls.delete(url); end.call(URL, url); };
    })()"""
    )
    page.upload(on="input[type=file]", files=[str(file)])
    page.until("document.querySelector('form.ask img')")
    ran(page)
    held = page.see(what="window.urls.size")
    page.see(what="location.hash = '/en-es@1/tokenize'")
    page.until("document.querySelector('[aria-pressed=true][data-name=tokenize]')")

    assert (2 if model == "scenes" else 1, 0) == (held, page.see(what="window.urls.size"))


def held_chat(page, server, text):
    """A message is sent, and its answer is held."""
    given(page, None, {"turns": text})
    server.say("tiny-generate.decode", "hold 1")
    page.click(on="button.main")
    server.wait_until(lambda: server.is_held("tiny-generate.decode"), what="a step")


def test_a_chat_keeps_what_was_sent(server, page):
    """Not what is written while the answer comes. Another layer asks the same again, and who begins anew has begun."""
    opened(page, server, "tiny-generate", "chat")
    page.see(what="document.querySelector('.settings').open = true")
    page.write(on="aria/max_new_tokens", text="8")
    held_chat(page, server, "the")
    given(page, None, {"turns": "next"})
    server.free("tiny-generate.decode")
    page.until(f"{TURNS}.length === 2")
    assert ("Youthe", "next") == (
        page.see(what=TURNS)[0],
        page.see(what="document.querySelector('.ask textarea').value"),
    )
    chosen(page, "Layer", "0")
    page.until("document.querySelector('.code pre')?.textContent.includes('\"explain\":{\"layer\":0}')")
    page.until(FREE)
    assert '"turns":[{"role":"user","content":"the"}]' in page.text(".code pre")
    assert ["Youthe", "next"] == [
        page.see(what=TURNS)[0],
        page.see(what="document.querySelector('.ask textarea').value"),
    ]
    assert 2 == page.see(what=f"{TURNS}.length")
    held_chat(page, server, "next")
    page.click(on="aria/Begin anew")
    server.free("tiny-generate.decode")
    page.until(FREE)
    assert [] == page.see(what=TURNS)


def test_another_token_shows_the_state(demo_repository, tmp_path, page):
    """Who has not the role is told so. Whoever asks for the dialog is told nothing of the token that is known."""
    (tmp_path / "models").mkdir()
    (tmp_path / "models" / "en-es").symlink_to(demo_repository / "en-es")
    tokens = tmp_path / "tokens"
    tokens.write_text("web call token-of-the-caller\nops call,metrics token-of-the-operator\n")
    tokens.chmod(0o600)
    with ServerProcess(tmp_path / "models", api_port=0, console="true", tokens=tokens) as server:
        server.api = server.wait_for("listening")["api"]
        server.wait_for("ready")
        page.open(url=f"http://{server.api}/#/state")
        for token, shown in (("token-of-the-caller", ".model .error"), ("token-of-the-operator", ".state")):
            page.until("document.querySelector('dialog').open")
            assert page.see(what="document.querySelector('dialog .error').hidden")
            page.write(on="#token", text=token)
            page.press(key="Enter")
            page.until(f"document.querySelector('{shown}')")
            page.click(on="header button")


def test_an_admin_changes_the_models(demo_repository, tmp_path, page):
    """Whoever has the role loads, swaps and unloads. A refusal is told, and others have the form in vain."""
    (tmp_path / "models" / "en-es").mkdir(parents=True)
    for version in (1, 2):
        (tmp_path / "models" / "en-es" / str(version)).symlink_to(demo_repository / "en-es" / "1")
    tokens = tmp_path / "tokens"
    tokens.write_text("web call,metrics token-of-the-caller\nops call,metrics,admin token-of-the-operator\n")
    tokens.chmod(0o600)
    said = "document.querySelector('.part [role=status]').textContent"
    settings = {"api_port": 0, "console": "true", "admin": "true", "admin_port": 0, "tokens": tokens}
    with ServerProcess(tmp_path / "models", **settings) as server:
        server.api = server.wait_for("listening")["api"]
        server.wait_for("ready")
        page.open(url=f"http://{server.api}/#/state")
        for token, verb, version, told in (
            ("token-of-the-caller", "Load", "1", "lacks the role admin"),
            ("token-of-the-operator", "Load", "1", "en-es 1 is loaded."),
            ("token-of-the-operator", "Swap", "2", "en-es 2 answers; unloaded: 1."),
            ("token-of-the-operator", "Unload", "2", "en-es 2 is unloaded."),
            ("token-of-the-operator", "Unload", "9", "no version 9 of model"),
        ):
            if not page.see(what="document.querySelector('dialog').open"):
                page.click(on="header button")
            page.write(on="#token", text=token)
            page.press(key="Enter")
            page.until("document.querySelector('form.changes')")
            page.write(on="aria/Model[role='combobox']", text="en-es")
            page.write(on="aria/Version[role='spinbutton']", text=version)
            page.click(on=f"form.changes button[name={verb.lower()}]")
            page.until(f"{said}.includes('{told}')")


def test_the_state_goes_on_after_a_refusal(server, page):
    """Of any status that another time may not have."""
    page.open(url=f"http://{server.api}/#/state")
    page.until("document.querySelector('.state')")
    page.answer(path="/console/metrics", status=503, json={"message": "not now"})
    page.until("document.querySelector('.model .error')?.textContent === 'not now'")
    page.answer(path="/console/metrics")
    page.until("document.querySelector('.state')")


def test_one_list_is_asked_for_at_a_time(server, page):
    """Whoever comes back to the tab again and again, while the server hangs, has one call under way."""
    opened(page, server, "en-es", "translate")
    page.see(
        what="""(() => {
        window.live = window.asked = 0;
        window.fetch = (url, { signal }) => new Promise((_, fail) => {
            [window.live, window.asked] = [window.live + 1, window.asked + 1];
            signal?.addEventListener("abort", () => { window.live--; fail(signal.reason); });
        });
        for (const each of [1, 2, 3]) document.dispatchEvent(new Event("visibilitychange"));
    })()"""
    )
    assert [3, 1] == page.see(what="[window.asked, window.live]")
    page.until("!document.querySelector('.banner').hidden")
    assert "The server does not answer. The page goes on when it does." == page.text(".banner")


def test_an_address_that_cannot_be_read_chooses_nothing(server, page):
    """As if there were none."""
    page.open(url=f"http://{server.api}/#/%")
    page.until("document.querySelector('form.ask')")
    judged(page, server)


def test_a_schema_may_have_any_key(server, page):
    """In Python as in JSON: a property `code`, and a null."""
    schema = {"properties": {"code": {"code": ["a", True, None]}}, "required": ["code"]}
    message = {"model": {"name": "m", "version": 1}, "decoding": {"constraint": {"jsonSchema": json.dumps(schema)}}}
    page.open(url=f"http://{server.api}/")
    code = page.see(
        what="import('/console/code.js').then(({ codeOf }) => codeOf({ name: 'generate', method: 'G/G' }, "
        f"{json.dumps(message | {'text': 'a'})}, [], {{ grpcPort: 1, rows: [] }}).openai)"
    )
    keywords = {each.arg: each.value for node in ast.walk(ast.parse(code)) for each in getattr(node, "keywords", ())}
    assert schema == ast.literal_eval(keywords["extra_body"])["response_format"]["json_schema"]["schema"]


def test_of_texts_and_pictures_those_that_were_given_last_are_embedded(server, page):
    """The server takes no mixture. The example's texts leave when a picture comes, and are there again when it goes.

    Of one picture attention is asked. Of one text it is not: such a model has none of texts.
    """
    texts, alert = "document.querySelector('.ask textarea').value", ".answer [role=alert]"
    opened(page, server, "tiny-match", "embed")
    examples = page.see(what=texts)
    page.upload(on="input[type=file]", files=[str(SCENE)])
    page.until("document.querySelector('.thumb')")
    ran(page)
    assert (None, "") == (page.text(alert), page.see(what=texts))
    assert [0, 1, 1] == [page.text(".code pre").count(f'"{name}":') for name in ("text", "image", "explain")]
    page.upload(on="input[type=file]", files=[])
    page.until("!document.querySelector('.thumb')")
    assert examples == page.see(what=texts) != ""
    page.upload(on="input[type=file]", files=[str(SCENE)])
    page.until("document.querySelector('.thumb')")
    page.write(on="aria/Texts[role='textbox']", text="a cat")
    ran(page)
    assert (None, []) == (page.text(alert), page.texts(".thumb"))
    assert [1, 0, 0] == [page.text(".code pre").count(f'"{name}":') for name in ("text", "image", "explain")]
    judged(page, server)


@pytest.mark.parametrize(
    ("model", "verb", "path", "field", "control"),
    [
        ("en-es", "classify", "ClassificationService/Classify", "text_pair", "Second text"),
        ("tiny-match", "embed", "EmbeddingService/Embed", "inputs[0].text", "Texts"),
        ("tiny-match", "embed", "EmbeddingService/Embed", "inputs[0].image", "Pictures"),
        ("tiny-generate", "chat", "GenerationService/StreamGenerate", "messages.turns[0].content", "Message"),
        ("en-es", "translate", "TranslationService/StreamTranslate", "decoding.stop[1]", "stop"),
    ],
)
def test_the_field_that_an_error_names_is_blamed(server, page, model, verb, path, field, control):
    """By its whole name, and no other."""
    opened(page, server, model, verb if verb != "classify" else "translate")
    if verb == "classify":
        listed(page, model, task="TASK_CLASSIFY_TEXT", takesPairs=True)
        page.see(what=f"location.hash = '/{model}@1/{verb}'")
        page.reload()
        page.until(f"document.querySelector('[aria-pressed=true][data-name={verb}]')")
    if control == "Pictures":
        page.upload(on="input[type=file]", files=[str(SCENE)])
    details = [{"type": "google.rpc.BadRequest", "debug": {"fieldViolations": [{"field": field}]}}]
    page.answer(path=f"/weft.v1.{path}", status=400, json={"message": "no", "details": details})
    page.click(on="button.main")
    page.until("document.querySelector('.answer [role=alert]')")

    blamed = "[...document.querySelectorAll('[aria-invalid=true]')]"
    assert [control] == page.see(
        what=f"{blamed}.map((each) => each.getAttribute('aria-label') ?? each.labels[0].textContent)"
    )


def test_what_cannot_be_copied_is_selected(server, page):
    """A page by http of another machine has no clipboard."""
    opened(page, server, "en-es", "tokenize")
    ran(page)
    page.see(what="Object.defineProperty(navigator, 'clipboard', { value: undefined })")
    page.click(on="aria/Copy")
    page.until("document.querySelector('.code').textContent.includes('Selected: press Ctrl+C')")

    assert page.text(".code pre") == page.see(what="getSelection().toString()")


def test_a_recording_that_the_browser_cannot_read_is_told(server, page):
    """Its answer stays."""
    page.open(url=f"http://{server.api}/")
    page.see(
        what="import('/console/attention.js').then(({ soundColumns }) => document.body.append("
        "soundColumns(new Blob(['no sound']), '', { columnS: 1, numColumns: 1 }).element))"
    )
    page.until("document.querySelector('.heard .quiet')")
    assert "This browser cannot draw the recording." == page.text(".heard .quiet")
    assert [] == page.judge()["errors"]
