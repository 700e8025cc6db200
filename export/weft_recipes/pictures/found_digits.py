"""Handwritten digits somewhere on a cluttered canvas, and how well a model reads and finds them.

The task of "Recurrent Models of Visual Attention" (Mnih et al. 2014, section 4.1): digits placed at random among
fragments of others.
"""

import io
import math
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from PIL import Image
from torch import Tensor
from torch.nn import functional

from weft_export.checkpoints.checkpoint import Checkpoint, load_checkpoint, save_checkpoint
from weft_export.families.classifier import Classifier
from weft_proto.v1 import bundle_pb2
from weft_recipes.digits import split
from weft_recipes.shared.card import Card, write_card
from weft_recipes.shared.figures import Figures, Stopwatch

SIDE = 32
"""Of the canvas, in pixels; SHOWN is that of stored pictures, each pixel as 4 x 4."""
SHOWN = 128
SIZES = {"channels": 1, "image_height": SIDE, "image_width": SIDE}
BOX = (11.0, 15.0)
"""The smallest and the largest side of a digit's box, in pixels."""
NUM_FRAGMENTS = 5
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


@dataclass(frozen=True)
class Found:
    """Pictures: pixel_values [n, 1, SIDE, SIDE] in -1..1, labels int64 [n], boxes [n, 4] (left, top, right, bottom)."""

    pixels: Tensor
    labels: Tensor
    boxes: Tensor


class Canvas:
    """Draws pictures from one side of the split: digits that are trained on, or those that never are."""

    def __init__(self, *, held_out: bool) -> None:
        pictures, labels, tested, test_labels = split()
        digits, names = (tested, test_labels) if held_out else (pictures, labels)
        self.digits = torch.from_numpy(digits.astype(np.float32) / 255)[:, None]
        self.labels = torch.from_numpy(names)

    def draw(self, chosen: Tensor, generator: torch.Generator, clutter: float = 1.0) -> Found:
        """Draw a picture of each chosen digit, an index below len(labels), with a share of the usual fragments."""
        count = len(chosen)
        layers, boxes = _place(self.digits[chosen], generator)
        others = torch.randint(len(self.digits), (count * NUM_FRAGMENTS,), generator=generator)
        kept = torch.rand(len(others), generator=generator) < clutter
        fragments, _ = _place(_fragment(self.digits[others], generator) * kept[:, None, None, None], generator)
        # Around the digit, not over it: half of an 8 hidden by half of a 3 has no right answer.
        around = fragments.view(count, NUM_FRAGMENTS, SIDE, SIDE).amax(dim=1, keepdim=True) * ~_inside(boxes)
        noise = torch.randn(layers.shape, generator=generator) * 0.08
        drawn = (torch.maximum(layers, around) * 0.9 + 0.05 + noise).clamp(0, 1)
        # To the whole steps that a stored picture has.
        return Found((drawn * 255).round() / 127.5 - 1, self.labels[chosen], boxes)

    def draw_any(self, count: int, generator: torch.Generator, clutter: float = 1.0) -> Found:
        """Draw pictures of random digits."""
        return self.draw(torch.randint(len(self.labels), (count,), generator=generator), generator, clutter)


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


def _place(pictures: Tensor, generator: torch.Generator) -> tuple[Tensor, Tensor]:
    """Put pictures [n, 1, 8, 8] somewhere on empty canvases [n, 1, SIDE, SIDE]; return the boxes too."""
    count = len(pictures)

    def between(low: float, high: float, *shape: int) -> Tensor:
        return low + (high - low) * torch.rand(count, *shape, generator=generator)

    size, angle, shear = between(*BOX), between(-math.pi / 12, math.pi / 12), between(-0.2, 0.2)
    stretch = between(0.9, 1.1, 2)
    corner = between(0, 1, 2) * (SIDE - size)[:, None]
    # From canvas to picture, both from -1 to 1: the scale, then the turn about the box's middle.
    matrix = torch.stack((angle.cos(), shear - angle.sin(), angle.sin(), angle.cos()), dim=1).view(-1, 2, 2)
    matrix = matrix * stretch[:, :, None] * (SIDE / size)[:, None, None]
    middle = (corner + size[:, None] / 2) * (2 / SIDE) - 1
    offset = -(matrix @ middle[:, :, None])
    grid = functional.affine_grid(torch.cat((matrix, offset), dim=2), [count, 1, SIDE, SIDE], align_corners=False)
    placed = functional.grid_sample(pictures, grid, align_corners=False)
    return placed, torch.cat((corner, corner + size[:, None]), dim=1)


def _fragment(pictures: Tensor, generator: torch.Generator) -> Tensor:
    """Keep a random 4 x 4 pixels of each picture [n, 1, 8, 8]."""
    corner = torch.randint(5, (len(pictures), 2), generator=generator)
    index = torch.arange(8)
    kept = (index >= corner[:, :, None]) & (index < corner[:, :, None] + 4)
    return pictures * (kept[:, 0, :, None] & kept[:, 1, None, :])[:, None]


def _inside(boxes: Tensor) -> Tensor:
    """Return bool [n, 1, SIDE, SIDE], True for pixels whose middle lies in the box [n, 4]."""
    left, top, right, bottom = boxes[:, :, None].unbind(dim=1)
    middle = torch.arange(SIDE) + 0.5
    across, down = (left < middle) & (middle < right), (top < middle) & (middle < bottom)
    return (down[:, :, None] & across[:, None, :])[:, None]


def _cover(box: Tensor, grid: tuple[int, int]) -> Tensor:
    """Return which share of each cell of a grid, in reading order, lies in a box of pixels."""
    rows, columns = grid
    left, top, right, bottom = box.tolist()

    def shares(low: float, high: float, cells: int) -> Tensor:
        edges = torch.arange(cells + 1) * (SIDE / cells)
        return (edges[1:].clamp(max=high) - edges[:-1].clamp(min=low)).clamp(min=0) * (cells / SIDE)

    return (shares(top, bottom, rows)[:, None] * shares(left, right, columns)).flatten()
