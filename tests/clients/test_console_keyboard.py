"""The console for who has no mouse, reads by a screen reader, needs large letters, or no motion; in a real Chromium."""

import json
from pathlib import Path

import pytest

from console_form import console_of, given, opened, ran
from driven_page import WHY_NOT, DrivenPage

pytestmark = [pytest.mark.e2e, pytest.mark.long, pytest.mark.skipif(bool(WHY_NOT), reason=WHY_NOT)]
EXAMPLES = Path(__file__).parents[2] / "export" / "checkpoints"
SCENE = EXAMPLES / "scenes/examples/a-large-red-cross-above-a-small-yellow-circle.png"
FOCUSED = "document.activeElement.textContent"
FREE = "!document.querySelector('button.main').disabled"


@pytest.fixture(scope="module")
def server(demo_repository, tmp_path_factory):
    """Models that read and write texts and pictures."""
    repository, points = tmp_path_factory.mktemp("some"), tmp_path_factory.mktemp("points")
    for name in ("en-es", "scenes", "tags", "pydocs"):
        (repository / name).symlink_to(demo_repository / name)
    with console_of(repository, points) as server:
        yield server


def test_whoever_asks_by_key_stays_at_the_button(server, page):
    """While it runs the next key is at Stop, and then at Run again. Whoever went elsewhere is left there."""
    opened(page, server, "en-es", "translate")
    page.focus(on="button.main")
    page.press(key="Enter")
    page.until("document.querySelector('#said')")
    page.until(FREE)
    assert "Run" == page.see(what=FOCUSED)
    page.focus(on="form.ask textarea")
    page.see(what="document.querySelector('#said').remove()")
    page.press(key="Control+Enter")
    page.until("document.querySelector('#said')")
    assert "TEXTAREA" == page.see(what="document.activeElement.tagName")


def test_whoever_stops_by_key_is_at_run_again(server, page):
    """The button that was pressed cannot be pressed any more."""
    opened(page, server, "pydocs", "generate")
    server.say("pydocs.decode", "hold 1")
    page.focus(on="button.main")
    page.press(key="Enter")
    server.wait_until(lambda: server.is_held("pydocs.decode"), what="a step")
    page.press(key="Tab")
    assert "Stop" == page.see(what=FOCUSED)
    page.press(key="Enter")
    page.until(FREE)
    server.free("pydocs.decode")
    assert "Run" == page.see(what=FOCUSED)


def test_what_is_asked_is_chosen_by_key(server, page):
    """The form is another one, and the key is where it was: at the name of what is asked now."""
    opened(page, server, "en-es", "translate")
    page.focus(on=".tabs [data-name=tokenize]")
    page.press(key="Enter")
    page.until("document.querySelector('[aria-pressed=true][data-name=tokenize]')")
    assert "Tokenize" == page.see(what=FOCUSED)


@pytest.mark.parametrize(
    ("address", "name", "target"),
    [("en-es@1/translate", "Skip to the answer", "answer"), ("state", "Skip to the state", "main")],
)
def test_the_first_key_skips_what_is_on_each_page(server, page, address, name, target):
    """To what the page is for. Its name says where."""
    page.open(url=f"http://{server.api}/#/{address}")
    page.until("document.querySelector('form.ask, .state')")
    page.press(key="Tab")
    assert name == page.see(what=FOCUSED)
    page.press(key="Enter")
    assert target == page.see(what="document.activeElement.id")


def test_a_reader_of_the_screen_hears_that_an_answer_has_come(server, page):
    """Also of what comes at once."""
    opened(page, server, "en-es", "tokenize")
    ran(page)
    assert "Answered." == page.text(".ask .row [role=status]")


def test_who_wants_no_motion_sees_none(server, page):
    """Not the mark behind a text that comes, either."""
    opened(page, server, "pydocs", "generate", motion="reduce")
    server.say("pydocs.decode", "hold 1")
    page.click(on="button.main")
    page.until("document.querySelector('.coming')")
    moving = "document.getAnimations().map((each) => each.animationName)"
    try:
        assert [] == page.see(what=moving)
        opened(page, server, "pydocs", "generate")
        page.click(on="button.main")
        page.until("document.querySelector('.coming')")
        assert ["blink"] == page.see(what=moving)
    finally:
        server.free("pydocs.decode")


@pytest.mark.parametrize("width", [360, 1280])
def test_letters_are_as_large_as_the_browser_s(server, width):
    """Of who has set them to twice the size, all are. Nothing is cut off, on a telephone either."""
    with DrivenPage("--blink-settings=defaultFontSize=32") as page:
        for model, verb, file in (("en-es", "translate", None), ("scenes", "caption", SCENE), ("tags", "tag", None)):
            opened(page, server, model, verb, width=width)
            given(page, file, {})
            page.see(what="document.querySelector('.settings').open = true")
            ran(page)
            assert "32px" == page.see(what="getComputedStyle(document.body).fontSize")
            assert width >= page.see(what="document.documentElement.scrollWidth"), model
            stays = page.see(what="getComputedStyle(document.querySelector('body > header')).position")
            assert ("static" if width == 360 else "sticky") == stays


def test_the_head_hides_nothing_that_is_gone_to(server, page):
    """By key, forwards and back: what has the focus stands below the page's head, which stays."""
    opened(page, server, "en-es", "translate", width=1280, height=420)
    page.see(what="document.querySelector('.settings').open = true")
    ran(page)
    hidden = """(() => {
        const { activeElement: at } = document, head = document.querySelector("body > header");
        const { top } = at.getBoundingClientRect(), isOfTheList = at.closest(".models, header, .skip");
        return isOfTheList || at === document.body || top >= head.getBoundingClientRect().bottom ? null : at.outerHTML;
    })()"""
    met = []
    for key in ["Tab"] * 30 + ["Shift+Tab"] * 40:
        page.press(key=key)
        met.append(page.see(what=hidden))
    assert [] == [each for each in met if each]


def test_the_chosen_model_is_seen_in_the_list(server, page):
    """On a telephone, where the list is a row, and where it is higher than the screen."""
    seen = """(() => {
        const inner = document.querySelector(".models [aria-current]").getBoundingClientRect();
        const outer = document.querySelector(".models").getBoundingClientRect();
        return inner.left >= outer.left && inner.right <= outer.right && inner.bottom <= innerHeight;
    })()"""
    for name, verb in (("tags", "tag"), ("en-es", "translate"), ("pydocs", "generate")):
        for size in ({"width": 360}, {"width": 1280, "height": 240}):
            opened(page, server, name, verb, **size)
            assert page.see(what=seen), (name, size)


@pytest.mark.parametrize(
    ("token", "expected"),
    [("a b", "a\u00a0b"), (" a", "\u00a0a"), (" ", "\u2423"), ("  ", "\u2423\u2423"), ("\n", "\u23ce"),
     (" \t", "\u00a0\u21e5"), ("\u00a0\r", "\u2423\u2423"), ("", "\u2205")],
)  # fmt: skip
def test_a_token_that_nobody_sees_has_a_name(server, page, token, expected):
    """A button of spaces alone would be none to a reader of the screen."""
    page.open(url=f"http://{server.api}/")
    shown = f"import('/console/dom.js').then(({{ shown }}) => shown({json.dumps(token)}))"
    assert expected == page.see(what=shown)
