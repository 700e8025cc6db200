"""Handwritten digits somewhere on a cluttered canvas.

The task of "Recurrent Models of Visual Attention" (Mnih et al. 2014, section 4.1): digits placed at random among
fragments of others.
"""

import math
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional

from weft_recipes.pictures.handwriting import split

SIDE = 32
"""Of the canvas, in pixels."""
BOX = (11.0, 15.0)
"""The smallest and the largest side of a digit's box, in pixels."""
NUM_FRAGMENTS = 5


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
        around = fragments.view(count, NUM_FRAGMENTS, SIDE, SIDE).amax(dim=1, keepdim=True) * ~within(boxes)
        noise = torch.randn(layers.shape, generator=generator) * 0.08
        drawn = (torch.maximum(layers, around) * 0.9 + 0.05 + noise).clamp(0, 1)
        # To the whole steps that a stored picture has.
        return Found((drawn * 255).round() / 127.5 - 1, self.labels[chosen], boxes)

    def draw_any(self, count: int, generator: torch.Generator, clutter: float = 1.0) -> Found:
        """Draw pictures of random digits."""
        return self.draw(torch.randint(len(self.labels), (count,), generator=generator), generator, clutter)


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


def within(boxes: Tensor) -> Tensor:
    """Return bool [n, 1, SIDE, SIDE], True for pixels whose middle lies in the box [n, 4]."""
    left, top, right, bottom = boxes[:, :, None].unbind(dim=1)
    middle = torch.arange(SIDE) + 0.5
    across, down = (left < middle) & (middle < right), (top < middle) & (middle < bottom)
    return (down[:, :, None] & across[:, None, :])[:, None]
