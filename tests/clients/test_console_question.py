"""An answer about a picture, in a real Chromium: it lights the picture and the question, and they light the answer."""

import json
import subprocess
from base64 import b64encode
from pathlib import Path

import pytest

from console_form import console_of, given, judged, opened, ran
from driven_page import WHY_NOT

pytestmark = [pytest.mark.e2e, pytest.mark.long, pytest.mark.skipif(bool(WHY_NOT), reason=WHY_NOT)]
CHECKPOINT = Path(__file__).parents[2] / "export" / "checkpoints" / "scenes-answers"
SHAPES = CHECKPOINT / "examples" / "green-square-purple-triangle.png"
QUESTION = "what is left of the purple triangle?"
ASKED, WROTE = ".chips.source .chip", ".chips:not(.source) .chip"
BRIGHTEST = """(() => {
    const heat = document.querySelector(".heat"), { width, height } = heat;
    const shades = heat.getContext("2d").getImageData(0, 0, width, height).data;
    let at = 0;
    for (let place = 0; place < width * height; place++) if (shades[4 * place + 3] < shades[4 * at + 3]) at = place;
    return [(at % width + 0.5) / width, (Math.floor(at / width) + 0.5) / height];
})()"""


@pytest.fixture(scope="module")
def server(demo_repository, tiny_repository, tmp_path_factory):
    """A model whose picture is a memory, and one whose picture stands before the words."""
    repository, points = tmp_path_factory.mktemp("two"), tmp_path_factory.mktemp("points")
    (repository / "scenes-answers").symlink_to(demo_repository / "scenes-answers")
    (repository / "tiny-git").symlink_to(tiny_repository / "tiny-git")
    with console_of(repository, points) as server:
        yield server


def answered(page, server, model="scenes-answers", **more):
    """A question about a picture has been asked."""
    opened(page, server, model, "answer", **more)
    given(page, SHAPES, {"question": QUESTION})
    ran(page)


def told(server, model):
    """The alignment of the server itself."""
    body = {"model": {"name": model}, "image": {"data": b64encode(SHAPES.read_bytes()).decode()}, "text": QUESTION}
    asked = ["curl", "-s", "-H", "content-type: application/json", "-d", json.dumps(body | {"explain": {}})]
    url = f"http://{server.api}/weft.v1.AnswerService/Answer"
    return json.loads(subprocess.run([*asked, url], check=True, capture_output=True).stdout)["alignment"]


def lit_of(shares):
    """Which of some shares the page lights: those over 0.35 of the largest."""
    return [place for place, share in enumerate(shares) if share > 0.35 * max(shares)]


def test_an_answer_about_a_picture_lights_it_both_ways(server, page):
    """Each word of it a place of the picture, and that place the word."""
    answered(page, server)
    number = page.texts(WROTE).index("square")
    page.hover(on=f"{WROTE}:nth-child({number + 1})")
    page.until("document.querySelector('.seen.lit')")
    x, y = page.see(what=BRIGHTEST)
    page.point(on=".seen", x=x, y=y)
    assert "square" in page.lit(WROTE)
    assert [] == page.lit(ASKED)
    assert not page.see(what="document.querySelector('.seen').classList.contains('lit')")


@pytest.mark.parametrize("model", ["scenes-answers", "tiny-git"])
def test_a_word_of_an_answer_lights_the_question_too(server, page, model):
    """By pointer or keyboard: the words that the server says it read, beside the place of the picture. And back."""
    answered(page, server, model)
    alignment = told(server, model)
    tokens, words = alignment["questionTokens"], alignment["targetTokens"]
    width = len(tokens)
    rows = [alignment["questionWeights"][row * width : (row + 1) * width] for row in range(len(words))]
    assert (tokens, words) == (page.texts(ASKED), page.texts(WROTE))
    for number, row in enumerate(rows):
        (page.hover if number % 2 else page.focus)(on=f"{WROTE}:nth-child({number + 1})")
        assert [tokens[place] for place in lit_of(row)] == page.lit(ASKED)
        page.until("document.querySelector('.seen.lit')")
    for number in range(width):
        page.hover(on=f"{ASKED}:nth-child({number + 1})")
        assert [words[place] for place in lit_of([row[number] for row in rows])] == page.lit(WROTE)
    judged(page, server)


def test_the_page_says_how_much_lay_where(server, page):
    """Of one attention both parts; where the picture has one of its own, all of which lay there, the question's."""
    says = ".part [role=status]"
    for model, sentences in (("scenes-answers", 1), ("tiny-git", 2)):
        answered(page, server, model)
        alignment = told(server, model)
        page.hover(on=f"{WROTE}:nth-child(2)")
        seen, read = (f"{round(100 * alignment[mass][1])}%" for mass in ("sourceMass", "questionMass"))
        expected = [
            f"{seen} of this token's attention lay on the picture.",
            f"The question got {read} of its attention.",
        ]
        assert " ".join(expected[-sentences:]) == page.text(says)
        page.hover(on="h1")
        assert "" == page.text(says)


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_what_is_lit_can_be_read(server, page, scheme):
    """On a telephone too: nothing is cut off, and each word has contrast, however much it is lit."""
    answered(page, server, width=360, scheme=scheme)
    for chips in (WROTE, ASKED):
        for number in range(len(page.texts(chips))):
            page.focus(on=f"{chips}:nth-child({number + 1})")
            # Colours change within a moment.
            page.see(what="new Promise((done) => setTimeout(done, 200))")
            assert [] == page.axe()
    assert 360 >= page.see(what="document.documentElement.scrollWidth")
