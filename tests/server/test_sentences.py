"""Texts are cut where sentences end, and nowhere else; and nothing of a text is lost."""
# ruff: noqa: RUF001 - marks of many scripts look like those of ASCII

import time
import unicodedata
from collections import Counter
from itertools import islice
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from weft_server.preprocessing.sentences import Sentence, divided, sentences

# In the file, `|` stands where the text is cut; white space around it is the gap. `#` names the script of what follows.
LINES = (Path(__file__).parent / "sentences.txt").read_text(encoding="utf-8").splitlines()
TEXTS = [
    *(line for line in LINES if not line.startswith("# ")),
    "1. First point|\n2. Second point|\n\nA title without a mark|\r\nText",
    "...",
    "no mark at all",
]


def test_the_list_has_ten_scripts_and_three_hundred_sentences():
    """Under each name of a script are texts in it."""
    scripts, script = Counter(), ""
    names = {"Han": "CJK", "Japanese": "HIRAGANA"}
    for line in LINES:
        if line.startswith("# "):
            script = line[2:]
        else:
            scripts[script] += 1 + line.count("|")
            assert any(names.get(script, script).upper() in unicodedata.name(each, "") for each in line), line
    assert len(scripts) >= 10
    assert scripts.total() >= 300


@pytest.mark.parametrize("marked", TEXTS)
def test_a_text_is_cut_where_its_sentences_end(marked):
    """Behind marks that end a sentence, with what closes behind them, and at ends of lines, where it is clear."""
    parts = sentences(marked.replace("|", ""))
    assert [each.strip() for each in marked.split("|")] == [part.text for part in parts]
    assert [part.text for part in parts] == [part.text for part in sentences("  " + marked.replace("|", ""))]


@given(st.text(st.one_of(st.sampled_from("aB. !?。」\"') \n\t1،؟…"), st.characters(exclude_categories=["Cs"]))))
def test_nothing_of_a_text_is_lost(text):
    """Sentences joined with their gaps are the text without the white space around it; gaps are white space."""
    parts = sentences(text)
    assert text.strip() == "".join(gap + sentence for gap, sentence in parts)
    assert all(not gap.strip() for gap, _ in parts)
    assert all(sentence and sentence == sentence.strip() for _, sentence in parts)


@given(st.text("ab ,;、 \n", min_size=1).map(str.strip).filter(bool), st.integers(1, 12))
def test_a_long_sentence_is_cut_into_parts_that_fit(text, most):
    """Nothing is lost, and only a part without white space or a clause may be too long."""
    parts = list(divided(Sentence("", text), lambda part: len(part) <= most, most + 3))
    assert text == "".join(gap + part for gap, part in parts)
    assert all(not gap.strip() for gap, _ in parts)
    assert all(part for _, part in parts)
    for _, part in parts:
        assert len(part) <= most or not part.strip("、").count(" ")


@pytest.mark.parametrize(
    ("text", "most", "expected"),
    [
        ("aa bb", 9, ["aa bb"]),
        ("aa, bb, cc dd, ee", 8, ["aa, bb,", "cc dd,", "ee"]),
        ("aa bb, cc", 4, ["aa", "bb,", "cc"]),
        ("aaaaaa bb", 4, ["aaaaaa", "bb"]),
        ("一二，三四，五六", 6, ["一二，三四，", "五六"]),
        ("1,000 b: c", 8, ["1,000 b:", "c"]),
    ],
)
def test_a_long_sentence_is_cut_at_its_clauses_first(text, most, expected):
    """As few parts as fit; between words only where a clause is too long."""
    assert expected == [part.text for part in divided(Sentence("", text), lambda part: len(part) <= most, most)]


@pytest.mark.parametrize("unit", [" ", ".", ". ", "a", "a ", "\n", "。", '"', ",", ", ", "a.\"' ", "(", "A. "])
def test_long_texts_are_cut_in_time(unit):
    """A quarter of a million characters of anything."""
    text = unit * (262_144 // len(unit))
    started = time.thread_time()
    for gap, sentence in sentences(text)[:300]:
        list(islice(divided(Sentence(gap, sentence), lambda part: len(part) <= 200, 2_000), 300))
    assert time.thread_time() - started < 10
