"""A chat about pictures, in a real Chromium: a word of the answer lights the pictures and the prompt, and they it."""

import json
import subprocess
from base64 import b64encode
from pathlib import Path

import pytest

from console_form import console_of, given, judged, opened, ran
from driven_page import WHY_NOT

pytestmark = [pytest.mark.e2e, pytest.mark.long, pytest.mark.skipif(bool(WHY_NOT), reason=WHY_NOT)]
EXAMPLES = Path(__file__).parents[2] / "export" / "checkpoints"
SCENE = EXAMPLES / "scenes/examples/a-large-red-cross-above-a-small-yellow-circle.png"
OTHER = EXAMPLES / "scenes-answers/examples/green-square-purple-triangle.png"
READ, WROTE = ".chips.source .chip", ".chips:not(.source) .chip"
MODELS = ["tiny-llava", "tiny-tiles"]
# Of the picture with a number: how bright the middle of each of so many cells is, row by row.
BRIGHT = """((number, rows, columns) => {
    const heat = document.querySelectorAll(".heat")[number], pen = heat.getContext("2d");
    const at = (cell, count, size) => Math.floor((cell + 0.5) / count * size);
    const shade = (across, down) => pen.getImageData(across, down, 1, 1).data[3];
    return [...Array(rows * columns).keys()].map((cell) => 1 - shade(
        at(cell %% columns, columns, heat.width), at(Math.floor(cell / columns), rows, heat.height)) / 255);
})(%d, %d, %d)"""


@pytest.fixture(scope="module")
def server(tiny_repository, tmp_path_factory):
    """A model that reads pictures as wholes, and one that reads one that is alone in tiles."""
    repository, points = tmp_path_factory.mktemp("seen"), tmp_path_factory.mktemp("points")
    for name in MODELS:
        (repository / name).symlink_to(tiny_repository / name)
    with console_of(repository, points) as server:
        yield server


def talked(page, server, model, files, **more):
    """A picture in each message, and the last answer is shown."""
    opened(page, server, model, "chat", **more)
    page.see(what="document.querySelector('.settings').open = true")
    page.write(on="aria/max_new_tokens", text="3")
    for number, file in enumerate(files, 1):
        given(page, file, {"turns": "a"})
        ran(page)
        assert None is page.text(".answer .error")
        page.until(f"document.querySelectorAll('.chat li').length === {2 * number}")
    page.see(what="document.querySelector('.settings').open = false")


def told(server, model, file):
    """The alignment of the server itself, to one message."""
    parts = [{"image": {"data": b64encode(file.read_bytes()).decode()}}, {"text": "a"}]
    asked = {"messages": {"turns": [{"role": "user", "parts": parts}]}, "decoding": {"maxNewTokens": 3, "greedy": {}}}
    body = json.dumps(asked | {"model": {"name": model}, "explain": {}})
    url = f"http://{server.api}/weft.v1.GenerationService/Generate"
    command = ["curl", "-s", "-H", "content-type: application/json", "-d", body, url]
    return json.loads(subprocess.run(command, check=True, capture_output=True).stdout)["alignment"]


def amid(page, selector):
    """Scroll to the middle of the window: at its edge, the page's head may lie over an element."""
    page.see(what=f"document.querySelector('{selector}').scrollIntoView({{ block: 'center' }})")


def lit_of(shares):
    """Which of some shares the page lights: those over 0.35 of the largest."""
    return [place for place, share in enumerate(shares) if share > 0.35 * max(shares)]


@pytest.mark.parametrize("model", MODELS)
def test_a_word_of_a_chat_lights_the_picture_and_the_prompt(server, page, model):
    """By pointer or keyboard: the words that the server says it read, and the brightest place. And back."""
    talked(page, server, model, [SCENE])
    alignment = told(server, model, SCENE)
    tokens, words = alignment["sourceTokens"], alignment["targetTokens"]
    width = len(tokens)
    rows = [alignment["weights"][row * width : (row + 1) * width] for row in range(len(words))]
    spoken = [column for column, token in enumerate(tokens) if token != "<image>"]
    assert 1 == page.see(what="document.querySelectorAll('.seen').length")
    assert [len(words), len(spoken)] == [len(page.texts(each)) for each in (WROTE, READ)]
    first = alignment["pictures"][0]
    down, across, begin = first["gridRows"], first["gridColumns"], first["firstColumn"]
    for number, row in enumerate(rows):
        (page.hover if number % 2 else page.focus)(on=f"{WROTE}:nth-child({number + 1})")
        assert len(lit_of([row[column] for column in spoken])) == len(page.lit(READ))
        page.until("document.querySelector('.seen.lit')")
        if model == "tiny-llava":
            grid = row[begin : begin + down * across]
            bright = page.see(what=BRIGHT % (0, down, across))
            # Shades run into each other: the brightest middle is of one of the most looked at.
            assert 0.5 * max(grid) < grid[bright.index(max(bright))]
    for number, column in enumerate(spoken):
        amid(page, f"{READ}:nth-child({number + 1})")
        page.hover(on=f"{READ}:nth-child({number + 1})")
        assert len(lit_of([row[column] for row in rows])) == len(page.lit(WROTE))
    judged(page, server)


@pytest.mark.parametrize("model", MODELS)
def test_a_place_of_a_picture_lights_words(server, page, model):
    """Those that looked there: of a picture in tiles, at the place of the whole and at that of a tile together."""
    talked(page, server, model, [SCENE])
    alignment = told(server, model, SCENE)
    width, count = len(alignment["sourceTokens"]), len(alignment["targetTokens"])
    for x, y in ((0.1, 0.1), (0.6, 0.4), (0.9, 0.9)):
        columns = []
        for grid in alignment["pictures"]:
            row, column = int(y * grid["gridRows"]), int(x * grid["gridColumns"])
            columns.append(grid["firstColumn"] + row * grid["rowColumns"] + column)
        assert (1 if model == "tiny-llava" else 2) == len(columns)
        shares = [sum(alignment["weights"][row * width + column] for column in columns) for row in range(count)]
        amid(page, ".seen")
        page.point(on=".seen", x=x, y=y)
        assert len(lit_of(shares)) == len(page.lit(WROTE))


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_pictures_of_several_messages_are_lit_together(server, page, scheme):
    """Each has its own shade, the page says how much lay on them, and on a telephone nothing is cut off."""
    talked(page, server, "tiny-llava", [SCENE, OTHER], width=360, scheme=scheme)
    assert 2 == page.see(what="document.querySelectorAll('.seen').length")
    page.focus(on=f"{WROTE}:nth-child(1)")
    page.until("document.querySelectorAll('.seen.lit').length === 2")
    assert "of what it gave to the prompt lay on pictures." in page.text(".part [role=status]")
    page.see(what="new Promise((done) => setTimeout(done, 200))")
    assert 360 >= page.see(what="document.documentElement.scrollWidth")
    judged(page, server)
