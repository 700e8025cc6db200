"""The console draws several answers as a tree, in a real Chromium."""

import json
import math
import subprocess

import pytest

from console_form import console_of, judged, opened, ran
from driven_page import WHY_NOT

pytestmark = [pytest.mark.e2e, pytest.mark.long, pytest.mark.skipif(bool(WHY_NOT), reason=WHY_NOT)]
TEXT = "the old women are not buying cheap apples"
# [what the end of an answer says, the words on its way from the root] of each.
WAYS = """[...document.querySelectorAll('.tree .leaf')].map((leaf) => {
    const way = [];
    for (let at = leaf.closest('li'); at; at = at.parentElement.closest('li'))
        way.unshift(...[...at.firstChild.querySelectorAll('.chip')].map((each) => each.textContent));
    return [leaf.textContent, way];
})"""
# For each place where the tree parts, the first words of its branches.
PARTED = """[...document.querySelectorAll('.tree ul')].map((list) =>
    [...list.children].map((each) => each.querySelector('.chip').textContent))"""
HOSTILE = "<img src=x onerror='document.title=1'>"


@pytest.fixture(scope="module")
def server(demo_repository, tmp_path_factory):
    """A translator."""
    repository, points = tmp_path_factory.mktemp("one"), tmp_path_factory.mktemp("points")
    (repository / "en-es").symlink_to(demo_repository / "en-es")
    with console_of(repository, points) as server:
        yield server


def searched(page, server, strategy="beams", **more):
    """Four answers are asked for."""
    opened(page, server, "en-es", "translate", **more)
    page.write(on="aria/Text[role='textbox']", text=TEXT)
    page.see(what="document.querySelector('.settings').open = true")
    page.see(
        what=f"""(() => {{
        const at = [...document.querySelectorAll('.field')].find((each) => each.textContent.startsWith('How tokens'));
        at.querySelector('select').value = '{strategy}';
        at.querySelector('select').dispatchEvent(new Event('change'));
    }})()"""
    )
    page.write(on="aria/num_outputs", text="4")
    ran(page)


def told(server, decoding):
    """The answers of the server itself, best first."""
    body = {"text": TEXT, "returnScores": True, "decoding": decoding | {"numOutputs": 4}}
    asked = ["curl", "-s", "-H", "content-type: application/json", "-d", json.dumps(body)]
    url = f"http://{server.api}/weft.v1.TranslationService/Translate"
    completion = json.loads(subprocess.run([*asked, url], check=True, capture_output=True).stdout)["completion"]
    return [completion, *completion["others"]]


def percent(share):
    """As the page writes it."""
    return "100%" if share >= 0.9995 else "< 0.1%" if share < 0.0005 else f"{100 * share:.1f}%"


@pytest.mark.parametrize("strategy", ["beams", "alternatives"])
def test_the_ways_of_the_tree_are_the_answers(server, page, strategy):
    """From the root to each end stands one answer, with its number, its probability and its score. Each stands once."""
    searched(page, server, strategy)
    answers = told(server, {strategy: {}})
    expected = []
    for number, answer in enumerate(answers, 1):
        score = [f"Score {answer['score']:.3f}"] if "score" in answer else []
        whole = f"{percent(math.exp(sum(answer['tokenLogProbs'])))} as a whole"
        expected.append([" · ".join([f"Answer {number}", whole, *score]), answer["tokens"]])

    assert 4 == len(answers)
    assert expected == sorted(page.see(what=WAYS))
    assert [] == [words for words in page.see(what=PARTED) if len(words) != len(set(words))]
    judged(page, server)


def test_the_end_of_an_answer_lights_its_way(server, page):
    """By keyboard or pointer, and nothing else."""
    searched(page, server)
    for key, number in (("", 0), ("Tab", 1)):
        page.press(key=key) if key else page.focus(on=".tree .leaf")
        (_, way) = page.see(what=WAYS)[number]
        assert way == page.texts(".tree .run.lit .chip")
    page.focus(on="button.main")
    assert [] == page.texts(".tree .run.lit")
    page.hover(on=".tree .leaf")
    assert page.see(what=WAYS)[0][1] == page.texts(".tree .run.lit .chip")


def test_one_answer_may_be_the_beginning_of_another(server, page):
    """Or be the same, or another from the first word on. What tokens say is text.

    A branch says how probable it was after what stands before it: the product of its own tokens.
    """
    opened(page, server, "en-es", "tokenize")
    answers = [[1, 2], [1, 2, 3], [4], [1, 2]]
    words = {1: "a", 2: HOSTILE, 3: "c", 4: "d"}
    made = [
        {"tokenIds": ids, "tokens": [words[each] for each in ids], "tokenLogProbs": [-1.0] * len(ids)}
        for ids in answers
    ]
    shown = """import('/console/tree.js').then(({ treeOf }) => {
        const made = treeOf(%s);
        if (made) document.querySelector('main').append(made);
        return Boolean(made);
    })"""
    assert page.see(what=shown % json.dumps(made))
    seen = page.see(what=WAYS)

    assert [[f"Answer {number}"] for number in (1, 4, 2, 3)] == [[says.partition(" · ")[0]] for says, _ in seen]
    spaced = HOSTILE.replace(" ", "\u00a0")
    assert [["a", spaced], ["a", spaced], ["a", spaced, "c"], ["d"]] == [way for _, way in seen]
    assert [["a", "d"], ["c"]] == page.see(what=PARTED)
    assert [percent(math.exp(-2)), percent(math.exp(-1)), percent(math.exp(-1))] == page.texts(".tree small")
    assert [] == page.axe()
    for none in (made[:1], [{}, {}], [{"tokenIds": [1]}, {"tokenIds": [2]}]):
        assert not page.see(what=shown % json.dumps(none))


@pytest.mark.parametrize(("width", "scheme"), [(360, "dark"), (1280, "light"), (2560, "dark")])
def test_it_fits_each_width(server, page, width, scheme):
    """From a telephone to a wide screen, and each text has contrast, lit or not."""
    searched(page, server, width=width, scheme=scheme)
    page.focus(on=".tree .leaf")
    page.see(what="new Promise((done) => setTimeout(done, 400))")

    assert width >= page.see(what="document.documentElement.scrollWidth")
    assert [] == page.axe()
