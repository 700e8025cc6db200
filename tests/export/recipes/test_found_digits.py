"""Digits somewhere in a picture: what is drawn, what is held out, and what the committed models make of it."""

import re
from pathlib import Path

import pytest
import torch
from PIL import Image

from weft_export.checkpoints.directory import load_checkpoint
from weft_export.checkpoints.picture import to_pixel_values
from weft_recipes.pictures import found_digits
from weft_recipes.pictures.canvas import SIDE, Canvas, within

CHECKPOINTS = Path(__file__).parents[3] / "export" / "checkpoints"
BARS = {"found-digits-resnet": 0.93, "found-digits-swin": 0.7, "found-digits-deit": 0.44}
"""How many held-out pictures each must read; the first is the teacher and has the examples."""
TEACHER, *_ = NAMES = tuple(BARS)


def figure(name, row):
    """Return a number from a model card's table."""
    card = (CHECKPOINTS / name / "README.md").read_text()
    return float(re.search(rf"^\| {re.escape(row)} \| ([\d.,]+) \|$", card, re.MULTILINE)[1].replace(",", ""))


def test_no_held_out_digit_is_trained_on():
    """Digits and fragments of training pictures come from pictures that held-out ones never use."""
    trained, tested = ({digit.numpy().tobytes() for digit in Canvas(held_out=side).digits} for side in (False, True))

    assert set() == trained & tested
    assert 360 == len(Canvas(held_out=True).digits)


def test_a_digit_lies_in_its_box():
    """Without clutter, nearly all ink is inside the box, and boxes are inside the picture."""
    found = Canvas(held_out=True).draw(torch.arange(100), torch.Generator().manual_seed(0), clutter=0.0)
    ink = ((found.pixels[:, 0] + 1) / 2 - 0.3).clamp(min=0)
    inside = ink * within(found.boxes)[:, 0]

    assert ((found.boxes >= 0) & (found.boxes <= SIDE)).all()
    assert inside.sum() / ink.sum() > 0.95


def test_clutter_never_covers_the_digit():
    """The same digit at the same place looks the same inside its box whatever lies around it."""
    canvas = Canvas(held_out=True)
    bare, cluttered = (canvas.draw(torch.arange(50), torch.Generator().manual_seed(0), share) for share in (0.0, 1.0))
    inside = within(bare.boxes)

    assert torch.equal(bare.pixels * inside, cluttered.pixels * inside)
    assert not torch.equal(bare.pixels, cluttered.pixels)


def test_a_box_covers_its_share_of_the_cells():
    """The covered shares of a grid's cells add up to the box's area, wherever its edges fall."""
    box = torch.tensor([3.0, 10.5, 16.0, 24.0])
    for grid in ((8, 8), (4, 16)):
        covered = found_digits._cover(box, grid)

        assert pytest.approx(13 * 13.5 / SIDE**2) == covered.mean()
        assert bool(((covered >= 0) & (covered <= 1)).all())


@pytest.mark.slow
@pytest.mark.parametrize("name", NAMES)
def test_models_read_and_find_digits(name):
    """The committed weights read as many digits as the card says, and look at the digit more than elsewhere."""
    measured = found_digits.measure(CHECKPOINTS / name)

    assert pytest.approx(measured["held-out accuracy"], abs=2e-3) == figure(name, "held-out accuracy")
    assert measured["held-out accuracy"] >= BARS[name]
    assert measured["attention inside the digit's box"] >= 1.5 * measured["the box's share of the picture"]


@torch.inference_mode()
@pytest.mark.parametrize("name", ["found-digits-resnet", "found-digits-swin"])  # the DeiT misreads two of four
def test_models_read_the_examples(name):
    """The example pictures are read as their names say."""
    checkpoint = load_checkpoint(CHECKPOINTS / name)
    files = sorted((CHECKPOINTS / TEACHER / "examples").glob("*.png"))
    pixels = [torch.from_numpy(to_pixel_values(Image.open(file), checkpoint.image)) for file in files]

    assert [file.stem for file in files] == [
        str(int(each)) for each in checkpoint.model(torch.stack(pixels)).argmax(-1)
    ]
