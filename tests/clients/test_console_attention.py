"""What the console draws of attention and probabilities, in a real Chromium, is what the server says; also in words."""

import json
import math
import subprocess
from base64 import b64encode
from operator import mul
from pathlib import Path

import pytest

from console_form import console_of, given, judged, opened, ran
from driven_page import WHY_NOT

pytestmark = [pytest.mark.e2e, pytest.mark.long, pytest.mark.skipif(bool(WHY_NOT), reason=WHY_NOT)]
EXAMPLES = Path(__file__).parents[2] / "export" / "checkpoints"
SCENE = EXAMPLES / "scenes/examples/a-large-red-cross-above-a-small-yellow-circle.png"
SOUND = EXAMPLES / "commands/examples/eighty-eight-fifty-five.wav"
READ, WROTE = ".chips.source .chip", ".chips:not(.source) .chip"
# In words, for who sees no colours.
TELLS = ".unseen[role=status]"
# Whether a part of the waveform, from one share of its width to another, has the colour of what is lit.
LIT = """(() => {
    const wave = document.querySelector(".wave"), { width, height } = wave;
    const ink = document.createElement("canvas").getContext("2d");
    ink.fillStyle = getComputedStyle(wave).caretColor;
    ink.fillRect(0, 0, 1, 1);
    const [red, green, blue] = ink.getImageData(0, 0, 1, 1).data;
    return [[0, 0.3], [0.3, 0.5], [0.5, 0.62], [0.62, 1]].map(([from, to]) => {
        const { data } = wave.getContext("2d").getImageData(from * width, 0, (to - from) * width, height);
        for (let at = 0; at < data.length; at += 4)
            if (data[at + 3] > 150 && [red, green, blue].every((each, part) => Math.abs(data[at + part] - each) < 30))
                return true;
        return false;
    });
})()"""


@pytest.fixture(scope="module")
def server(demo_repository, tiny_repository, tmp_path_factory):
    """Models that read, see and hear."""
    repository, points = tmp_path_factory.mktemp("some"), tmp_path_factory.mktemp("points")
    for model in (
        *(demo_repository / name for name in ("en-es", "scenes", "commands")),
        tiny_repository / "tiny-embed",
    ):
        (repository / model.name).symlink_to(model)
    with console_of(repository, points) as server:
        yield server


def told(server, method, **body):
    """What the server itself answers."""
    asked = ["curl", "-s", "-H", "content-type: application/json", "-d", json.dumps(body)]
    url = f"http://{server.api}/weft.v1.{method}"
    return json.loads(subprocess.run([*asked, url], check=True, capture_output=True).stdout)


def rows_of(alignment):
    """Its weights, a row for each token that was written."""
    weights, targets = alignment["weights"], alignment["targetTokens"]
    width = len(weights) // len(targets)
    return [weights[at * width : (at + 1) * width] for at in range(len(targets))]


def chosen(page, label, value):
    """A layer or a head."""
    page.see(
        what=f"""(() => {{
        const at = [...document.querySelectorAll('.field')].find((each) => each.firstChild.textContent === '{label}');
        at.querySelector('select').value = '{value}';
        at.querySelector('select').dispatchEvent(new Event('change'));
    }})()"""
    )


@pytest.mark.parametrize("explain", [{}, {"layer": 0}, {"layer": 0, "head": 2}, {"layer": 1, "head": 0}])
def test_what_is_lit_is_what_that_head_looked_at(server, page, explain):
    """As bright as the server's weights, of the row's largest. What is chosen is asked anew, and drawn."""
    opened(page, server, "en-es", "translate")
    ran(page)
    page.see(what="document.querySelector('.settings').open = true")
    for name, value in explain.items():
        chosen(page, name.capitalize(), value)
    said = json.dumps(explain, separators=(",", ":"))
    page.until(f"document.querySelector('.code pre')?.textContent.includes('\"explain\":{said}')")
    page.until("!document.querySelector('button.main').disabled")
    alignment = told(server, "TranslationService/Translate", text="we are eating bread", explain=explain)["alignment"]
    for number, row in enumerate(rows_of(alignment)):
        page.focus(on=f"{WROTE}:nth-child({number + 1})")
        heats = page.see(
            what=f"[...document.querySelectorAll('{READ}')].map((e) => e.style.getPropertyValue('--heat'))"
        )
        assert [each / max(row) for each in row] == pytest.approx([float(each) for each in heats], rel=1e-4)


def test_the_shade_of_a_token_is_its_probability(server, page):
    """As the server says it, and in words where it is pointed at."""
    opened(page, server, "en-es", "translate")
    ran(page)
    completion = told(server, "TranslationService/Translate", text="we are eating bread", returnScores=True)[
        "completion"
    ]
    probabilities = [math.exp(each) for each in completion["tokenLogProbs"]]
    shades = page.see(what=f"[...document.querySelectorAll('{WROTE}')].map((e) => e.style.getPropertyValue('--sure'))")

    assert probabilities == pytest.approx([float(each) for each in shades], rel=1e-4)
    titles = page.see(what=f"[...document.querySelectorAll('{WROTE}')].map((each) => each.title)")
    assert ["100%" if each >= 0.9995 else f"{100 * each:.1f}%" for each in probabilities] == titles


def test_the_cosines_are_those_of_the_vectors(server, page):
    """Each input beside each."""
    opened(page, server, "tiny-embed", "embed")
    texts = ["the cat", "a dog", "the cat"]
    page.write(on="aria/Texts", text="\n".join(texts))
    ran(page)
    answer = told(server, "EmbeddingService/Embed", inputs=[{"text": each} for each in texts])
    vectors = [each["values"] for each in answer["embeddings"]]

    def cosine(one, other):
        return sum(map(mul, one, other)) / math.hypot(*one) / math.hypot(*other)

    expected = [cosine(one, other) for one in vectors for other in vectors]
    assert expected == pytest.approx([float(each) for each in page.texts(".cosine")], abs=0.00501)


def test_a_word_of_a_recording_lights_its_moment(server, page):
    """In the waveform, and no other. Its words say when it was."""
    opened(page, server, "commands", "transcribe")
    given(page, SOUND, {})
    ran(page)
    page.until("document.querySelector('.heard audio').readyState > 2")
    assert [False] * 4 == page.see(what=LIT)
    for word, number, part in (("eighty", 1, 0), ("fifty", 3, 2), ("five", 4, 3)):
        page.focus(on=f".chips .chip:nth-child({number})")
        assert (word, [at == part for at in range(4)]) == (
            page.see(what="document.activeElement.textContent"),
            page.see(what=LIT),
        )
    page.focus(on=".chips .chip:nth-child(3)")
    body = {"audio": {"data": b64encode(SOUND.read_bytes()).decode()}, "explain": {}}
    alignment = told(server, "TranscriptionService/Transcribe", **body)["alignment"]
    row = rows_of(alignment)[2]
    at = (row.index(max(row)) + 0.5) * alignment["columnS"]
    assert 1.0 < at < 1.5
    assert f"It looked most at {at:.1f} s." == page.text(TELLS)


def test_who_sees_no_colours_hears_what_is_lit(server, page):
    """Of a text, both ways: the tokens that are lit, the brightest one first."""
    opened(page, server, "en-es", "translate")
    ran(page)
    page.focus(on=f"{WROTE}:nth-child(2)")
    assert "It looked most at \u201ceating\u201d." == page.text(TELLS)
    page.focus(on=f"{READ}:nth-child(4)")
    assert "Most looked at by \u201cpan\u201d." == page.text(TELLS)
    page.focus(on="button.main")
    assert "" == page.text(TELLS)
    judged(page, server)


def test_arrow_keys_go_over_a_picture(server, page):
    """As a pointer does: a place lights itself and the words that looked there. Whoever leaves leaves nothing lit."""
    opened(page, server, "scenes", "caption")
    given(page, SCENE, {})
    ran(page)
    body = {"image": {"data": b64encode(SCENE.read_bytes()).decode()}, "explain": {}}
    alignment = told(server, "CaptionService/Caption", **body)["alignment"]
    rows, across, down = rows_of(alignment), alignment["gridColumns"], alignment["gridRows"]
    number = alignment["targetTokens"].index("circle")
    page.focus(on=f"{WROTE}:nth-child({number + 1})")
    best = rows[number].index(max(rows[number]))
    assert f"It looked most at {round(100 * (best % across + 0.5) / across)}% from the left, " in page.text(TELLS)
    page.focus(on=".seen")
    page.press(key="ArrowRight")
    place = down // 2 * across + across // 2
    for key, steps in (("ArrowRight", best % across - place % across), ("ArrowDown", best // across - place // across)):
        for _ in range(abs(steps)):
            page.press(key=key if steps > 0 else {"ArrowRight": "ArrowLeft", "ArrowDown": "ArrowUp"}[key])
    shares = [each[best] for each in rows]
    lit = [word for word, share in zip(alignment["targetTokens"], shares, strict=True) if share > 0.35 * max(shares)]

    assert "circle" in lit
    assert lit == page.lit(WROTE)
    assert page.text(TELLS).startswith("Most looked at by \u201c")
    assert page.see(what="document.querySelector('.seen').classList.contains('lit')")
    for _ in range(across + down):
        page.press(key="ArrowRight")
    assert 0 == page.see(what="scrollX")
    judged(page, server)
    page.focus(on="button.main")
    assert ([], False) == (page.lit(WROTE), page.see(what="document.querySelector('.seen').classList.contains('lit')"))


def test_arrow_keys_go_over_a_recording(server, page):
    """From its middle to its words."""
    opened(page, server, "commands", "transcribe")
    given(page, SOUND, {})
    ran(page)
    page.until("document.querySelector('.heard audio').readyState > 2")
    page.focus(on=".wave")
    met = []
    for key in ["ArrowLeft"] * 50 + ["ArrowRight"] * 50:
        page.press(key=key)
        met += [word for word in page.lit(".chips .chip") if word not in met]
    assert {"eighty", "eight", "fifty", "five"} == set(met)
    judged(page, server)


def test_a_picture_that_is_cut_is_lit_where_it_was_seen(server, page):
    """Of a broad one the model sees the middle. What it did not see is dark, and pointing there lights nothing."""
    opened(page, server, "en-es", "tokenize")
    seen = page.see(
        what="""import("/console/attention.js").then(async ({ pictureColumns }) => {
        const drawn = document.createElement("canvas"), region = { left: 0.25, top: 0, right: 0.75, bottom: 1 };
        [drawn.width, drawn.height] = [200, 100];
        const grid = { gridRows: 1, gridColumns: 2, imageRegion: region }, met = [];
        const columns = pictureColumns(drawn.toDataURL(), grid);
        document.querySelector("main").replaceChildren(columns.element);
        await columns.element.querySelector("img").decode();
        columns.show([1, 0]);
        const heat = columns.element.querySelector(".heat"), box = heat.getBoundingClientRect();
        const shade = (x) => heat.getContext("2d").getImageData(x * heat.width, heat.height / 2, 1, 1).data[3];
        columns.point = (number) => met.push(number);
        const at = (x) => ({ clientX: box.left + x * box.width, clientY: box.top + 5 });
        for (const x of [0.1, 0.3, 0.7, 0.9]) columns.element.dispatchEvent(new PointerEvent("pointermove", at(x)));
        return { shades: [0.1, 0.3, 0.7, 0.9].map(shade), met, names: [0, 1].map(columns.name) };
    })"""
    )
    assert [184, 0, 184, 184] == pytest.approx(seen["shades"], abs=10)
    assert [None, 0, 1, None] == seen["met"]
    assert ["38% from the left, 50% from the top", "63% from the left, 50% from the top"] == seen["names"]
