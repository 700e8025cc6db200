"""What the recipes of digits on a canvas share: the held-out pictures, the figures, and the checkpoint."""

import io
from pathlib import Path
from typing import Any

import torch
from PIL import Image
from torch import Tensor

from weft_export.checkpoints.checkpoint import Checkpoint
from weft_export.checkpoints.directory import load_checkpoint, save_checkpoint
from weft_export.families.classifier import Classifier
from weft_proto.v1 import bundle_pb2
from weft_recipes.pictures.canvas import SIDE, Canvas, Found
from weft_recipes.shared.card import Card, write_card
from weft_recipes.shared.figures import Figures, Stopwatch

SHOWN = 128
"""The side of stored pictures: each pixel of the canvas as 4 x 4."""
SIZES: dict[str, Any] = {"channels": 1, "image_height": SIDE, "image_width": SIDE}
NUM_TESTED, NUM_EXPLAINED, TEST_SEED = 1800, 300, 99
"""Held-out pictures: five of each held-out digit; attention is measured on the first NUM_EXPLAINED."""
EXAMPLES = (2, 5, 6, 9)
LABELS = tuple(str(digit) for digit in range(10))
DATA = """The 1,797 handwritten digits (8 x 8 pixels, 43 people) that scikit-learn ships
(`sklearn.datasets.load_digits`), split as for the checkpoint `digits`: a fifth, stratified by label, was never trained
on. A picture is 32 x 32 pixels. One digit, enlarged to a box of 11 to 15 pixels a side, turned, sheared and stretched
a little, stands anywhere in it, amid noise and five fragments (quarters) of other digits of the same split, which never
cover it; the label is the whole digit's. Training pictures are drawn anew for each step. Held out are 1,800 fixed
pictures of the 360 digits that were never trained on, fragments included."""
NOTES = """- Ink is bright and the ground dark; there must be one digit, at about the size shown in training.
- Attention is the model's rollout, which sums to 1; the figure is its share inside the digit's box, the mean over the
  first 300 held-out pictures. A model that looked everywhere alike would have the box's share of the picture.
- The writers of the held-out digits also wrote training digits; a new hand may be read less well.
- Sizes and steps were set after shorter trial runs that were measured on the same held-out pictures."""


def tested() -> Found:
    """Return the held-out pictures."""
    canvas = Canvas(held_out=True)
    chosen = torch.arange(NUM_TESTED) % len(canvas.labels)
    return canvas.draw(chosen, torch.Generator().manual_seed(TEST_SEED))


def finish(out: Path, family: str, model: Classifier, card: Card, watch: Stopwatch, figures: Figures) -> Figures:
    """Write a trained model's checkpoint and card into `out`; return the figures of what was written."""
    golden = png(tested().pixels[0])
    checkpoint = Checkpoint(
        family=family,
        description="A handwritten digit somewhere in a cluttered picture",
        model=model,
        golden=bundle_pb2.Golden(image_path="golden.png"),
        image=image_spec(model.config.grid),
        labels=LABELS,
        files={"golden.png": golden},
    )
    save_checkpoint(out, checkpoint, torch.float16)
    num_parameters = sum(p.numel() for p in model.parameters())
    figures = {**measure(out), **figures, "parameters": num_parameters, **watch.figures()}
    write_card(out, card, figures)
    return figures


def write_examples(out: Path) -> None:
    """Write a held-out picture of each of EXAMPLES into out/examples, named by its label: the first there is."""
    pictures = tested()
    (out / "examples").mkdir(exist_ok=True)
    for label in EXAMPLES:
        index = int((pictures.labels == label).nonzero()[0])
        (out / "examples" / f"{label}.png").write_bytes(png(pictures.pixels[index]))


@torch.no_grad()
def measure(directory: Path) -> Figures:
    """Measure a stored checkpoint on the held-out pictures."""
    model, pictures = load_checkpoint(directory).model, tested()
    assert isinstance(model, Classifier), f"{directory} does not classify. This is a bug."
    answers = torch.cat([model(pixels).argmax(dim=-1) for pixels in pictures.pixels.chunk(18)])
    inside, area = attention_inside(model, pictures)
    return {
        "held-out accuracy": (answers == pictures.labels).float().mean().item(),
        "held-out pictures": NUM_TESTED,
        "attention inside the digit's box": inside,
        "the box's share of the picture": area,
    }


@torch.no_grad()
def attention_inside(model: Classifier, pictures: Found) -> tuple[float, float]:
    """Return the mean share of a model's summary that lies in the digit's box, and the box's mean share of the area."""
    everything = torch.tensor([-1])
    inside = area = 0.0
    for pixels, box in zip(pictures.pixels[:NUM_EXPLAINED], pictures.boxes[:NUM_EXPLAINED], strict=True):
        weights, _ = model.explain(everything, everything, pixels[None])
        covered = _cover(box, model.config.grid)
        inside += float((weights[0] * covered).sum()) / NUM_EXPLAINED
        area += float(covered.mean()) / NUM_EXPLAINED
    return inside, area


def image_spec(grid: tuple[int, int]) -> bundle_pb2.ImageSpec:
    """Describe the pictures, with attention shown on a model's grid."""
    rows, columns = grid
    return bundle_pb2.ImageSpec(
        channels=1,
        height=SIDE,
        width=SIDE,
        resample=bundle_pb2.RESAMPLE_BOX,
        mean=[0.5],
        std=[0.5],
        grid_rows=rows,
        grid_columns=columns,
    )


def png(pixels: Tensor) -> bytes:
    """Return pixel_values [1, SIDE, SIDE] as a PNG with a side of SHOWN pixels."""
    values = ((pixels[0] + 1) * 127.5).round().to(torch.uint8).numpy()
    file = io.BytesIO()
    Image.fromarray(values).resize((SHOWN, SHOWN), Image.Resampling.NEAREST).save(file, "PNG", optimize=True)
    return file.getvalue()


def _cover(box: Tensor, grid: tuple[int, int]) -> Tensor:
    """Return which share of each cell of a grid, in reading order, lies in a box of pixels."""
    rows, columns = grid
    left, top, right, bottom = box.tolist()

    def shares(low: float, high: float, cells: int) -> Tensor:
        edges = torch.arange(cells + 1) * (SIDE / cells)
        return (edges[1:].clamp(max=high) - edges[:-1].clamp(min=low)).clamp(min=0) * (cells / SIDE)

    return (shares(top, bottom, rows)[:, None] * shares(left, right, columns)).flatten()
