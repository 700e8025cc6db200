"""Notices and their labels: spans lie where their text is, and tokens carry them there and back."""

import re

import pytest
from tokenizers import Tokenizer

from weft_export.checkpoints.spans import spans_of
from weft_recipes.tags import IGNORED, LABELS, f1, labels_of, word_piece_tokenizer
from weft_recipes.texts import names, templates
from weft_recipes.texts.notices import LABEL_OF, Notice, Notices

ALL_NAMES = f"{names.GIVEN_NAMES} {names.FAMILY_NAMES} {names.TOWNS} {names.EITHER}".split()


@pytest.fixture(scope="module")
def tokenizer() -> Tokenizer:
    """A tokenizer trained on notices of the training part."""
    notices = Notices(0, new_templates=False, new_names=False)
    return word_piece_tokenizer(notices.draw().text for _ in range(2_000))


def drawn(count=300, **parts):
    """Draw notices."""
    notices = Notices(1, **{"new_templates": False, "new_names": False, **parts})
    return [notices.draw() for _ in range(count)]


def test_spans_lie_where_their_text_is():
    """Spans are in order, apart, and begin and end with a letter, a digit or a sign; every kind comes up."""
    for notice in drawn():
        assert "{" not in notice.text
        ends = [0] + [end for _, _, end in notice.spans]
        assert all(before <= start < end for before, (_, start, end) in zip(ends, notice.spans, strict=False))
        assert all(re.fullmatch(r"[\w$€£](.*[\w%])?", notice.text[start:end]) for _, start, end in notice.spans)
    assert set(LABEL_OF.values()) == {kind for notice in drawn() for kind, _, _ in notice.spans}


def test_parts_have_no_name_in_common():
    """No name that is held out is in a notice to train on, unless as a part of another word, and vice versa."""
    for new_names in (False, True):
        for notice in drawn(new_names=new_names):
            for kind, start, end in notice.spans:
                if kind in ("PERSON", "PLACE"):
                    words = re.findall(r"\w+", notice.text[start:end])
                    assert all(names.is_held_out(word) == new_names for word in words if word in ALL_NAMES)


def test_templates_are_split():
    """Both parts have templates of every kind, and none is in both."""
    for held_out in (False, True):
        part = " ".join(t for t in templates.TEMPLATES if templates.is_held_out(t) == held_out)
        assert all(f"{{{kind}}}" in part for kind in LABEL_OF)
    assert 106 == len(templates.TEMPLATES) == len(set(templates.TEMPLATES))


def test_draws_repeat_with_the_seed():
    """The same seed draws the same notices."""
    assert drawn(20) == drawn(20)


def test_labels_lead_back_to_the_spans(tokenizer):
    """What labels_of writes on the tokens, spans_of reads: the spans of the text, to the character, in any script."""
    notices = [*drawn(), *drawn(new_templates=True, new_names=True, invented=0.5)]
    notices.append(Notice("Дмитрий met Ōe in 北京.", (("PERSON", 0, 7), ("PERSON", 12, 14), ("PLACE", 18, 20))))
    for notice in notices:
        labels = labels_of(notice, tokenizer.encode(notice.text))

        assert (IGNORED, IGNORED) == (labels[0], labels[-1])
        # Special tokens are in no span, whatever their label.
        assert list(notice.spans) == spans_of([LABELS[max(label, 0)] for label in labels], notice.text, tokenizer)


def test_an_inside_without_a_beginning_begins(tokenizer):
    """I-X after O or after another kind begins a span, B-X after X begins a new one, and O makes none."""
    text = "in in in in in"
    labels = ["O", "I-PLACE", "I-PERSON", "B-PERSON", "I-PERSON", "O", "O"]

    assert [("PLACE", 0, 2), ("PERSON", 3, 5), ("PERSON", 6, 11)] == spans_of(labels, text, tokenizer)


def test_f1_wants_kind_and_both_ends():
    """A span that is too long, or of another kind, is as wrong as none."""
    notice = Notice("Ana and Ben in Rome", (("PERSON", 0, 3), ("PERSON", 8, 11), ("PLACE", 15, 19)))

    assert 1 == f1([notice], [notice.spans])
    assert pytest.approx(1 / 3) == f1([notice], [[("PERSON", 0, 3), ("PLACE", 8, 11), ("PLACE", 12, 19)]])
    assert pytest.approx(2 / 3) == f1([notice], [[("PERSON", 0, 3), ("PLACE", 15, 19)]], "PERSON")
    assert 0 == f1([notice], [[]])
