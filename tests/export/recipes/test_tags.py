"""The tags checkpoint finds what its card says, to the character."""

import re
from pathlib import Path

import pytest
from tokenizers import Tokenizer

from weft_export.checkpoints.directory import load_checkpoint
from weft_recipes import tags
from weft_recipes.texts.notices import Notices

DIRECTORY = Path(__file__).parents[3] / "export" / "checkpoints" / "tags"


@pytest.fixture(scope="module")
def find():
    """Return a function from texts to their spans."""
    checkpoint = load_checkpoint(DIRECTORY)
    tokenizer = Tokenizer.from_buffer(checkpoint.files["source.json"])
    return lambda *texts: tags.tag(checkpoint.model, tokenizer, texts)


def figure(row):
    """Return a number from the model card's table."""
    found = re.search(rf"^\| {re.escape(row)} \| ([\d.]+) \|$", (DIRECTORY / "README.md").read_text(), re.MULTILINE)
    assert found, row
    return float(found[1])


def test_the_example_is_found(find):
    """Every span of the card's own example is found, names with letters of other alphabets to the character."""
    (spans,) = find(tags.EXAMPLE)
    found = [(kind, tags.EXAMPLE[start:end]) for kind, start, end in spans]

    expected = [("PERSON", "Zoë Krüger"), ("MONEY", "€40"), ("QUANTITY", "3 kg"), ("PLACE", "Łódź")]
    assert [*expected, ("DATE", "12 May 2021")] == found


@pytest.mark.parametrize(
    ("row", "new_templates"),
    [("span F1, names never seen", False), ("span F1, names and templates never seen", True)],
)
def test_f1_is_what_the_card_says(row, new_templates, find):
    """On 500 fresh notices, F1 is that of the card, but for the draw."""
    drawn = Notices(12, new_templates=new_templates, new_names=True)
    notices = [drawn.draw() for _ in range(500)]

    assert pytest.approx(figure(row), abs=0.04) == tags.f1(notices, find(*(notice.text for notice in notices)))
