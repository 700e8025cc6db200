"""Recipe `digits`: a Vision Transformer on the handwritten digits that scikit-learn ships."""

import io
import math
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from PIL import Image
from torch import Tensor
from torch.nn import functional

from weft_export.checkpoints.checkpoint import Checkpoint
from weft_export.checkpoints.directory import load_checkpoint, save_checkpoint
from weft_export.checkpoints.held_out import HeldOut, write_held_out
from weft_export.checkpoints.picture import to_pixel_values
from weft_export.console import OnProgress
from weft_export.families.vit import Vit, VitConfig
from weft_proto.v1 import bundle_pb2
from weft_recipes.pictures.handwriting import split
from weft_recipes.shared.card import Card, write_card
from weft_recipes.shared.figures import Figures, Stopwatch
from weft_recipes.shared.training import fit, prepare, shuffled

SEED = 5
BATCH, NUM_STEPS, PEAK_LR = 64, 2_500, 2e-3
SIDE, PATCH, SHOWN = 8, 2, 128
"""SHOWN is the side of the example pictures: each pixel of a digit as 16 x 16."""
IMAGE = bundle_pb2.ImageSpec(
    channels=1,
    height=SIDE,
    width=SIDE,
    resample=bundle_pb2.RESAMPLE_BOX,
    mean=[0.5],
    std=[0.5],
    grid_rows=SIDE // PATCH,
    grid_columns=SIDE // PATCH,
)


def train(out: Path, on_progress: OnProgress) -> Figures:
    """Train, write the checkpoint into `out`, and return the figures measured on the test split."""
    watch = Stopwatch()
    generator = prepare(SEED)
    pictures, labels, test_pictures, test_labels = split()
    x, y = _pixels(pictures), torch.from_numpy(labels)
    config = VitConfig(
        num_labels=10,
        channels=1,
        image_height=SIDE,
        image_width=SIDE,
        patch_size=PATCH,
        d_model=64,
        num_heads=4,
        d_ff=128,
        num_layers=4,
    )
    model = Vit(config)
    order = shuffled(len(x), BATCH, generator)

    def loss_of(_step: int) -> Tensor:
        chosen = next(order)
        return functional.cross_entropy(model(distort(x[chosen], generator)), y[chosen], label_smoothing=0.05)

    fit(model, loss_of, num_steps=NUM_STEPS, peak_lr=PEAK_LR, weight_decay=0.05, on_progress=on_progress)
    examples = {int(label): picture for picture, label in zip(test_pictures, test_labels, strict=True)}
    save_checkpoint(out, _checkpoint(model, examples[7]))
    (out / "examples").mkdir(exist_ok=True)
    for label in (3, 5, 7):
        (out / "examples" / f"{label}.png").write_bytes(_png(examples[label]))
    figures = measure(out)
    figures["pictures trained on"] = len(x)
    figures["parameters"] = sum(p.numel() for p in model.parameters())
    figures |= watch.figures()
    write_held_out(out, held_out())
    write_card(out, CARD, figures)
    return figures


@torch.no_grad()
def measure(directory: Path) -> Figures:
    """Measure a stored checkpoint on the test split."""
    model = load_checkpoint(directory).model
    *_, pictures, labels = split()
    x, y = _pixels(pictures), torch.from_numpy(labels)
    accuracy = (model(x).argmax(dim=-1) == y).float().mean().item()
    return {"test accuracy": accuracy, "test pictures": len(x)}


def held_out() -> HeldOut:
    """Return the test split."""
    *_, pictures, labels = split()
    return [(_png(picture, SIDE), str(label)) for picture, label in zip(pictures, labels.tolist(), strict=True)]


def distort(pictures: Tensor, generator: torch.Generator) -> Tensor:
    """Turn, shear, scale and shift pictures [batch, 1, 8, 8] a little, each in its own way, over a dark background."""
    count = len(pictures)

    def between(limit: float, *shape: int) -> Tensor:
        return (torch.rand(count, *shape, generator=generator) * 2 - 1) * limit

    angle, shear, scale, shift = between(math.pi / 12), between(0.2), 1 + between(0.12, 2), between(0.25, 2)
    rows = (
        torch.stack((angle.cos() * scale[:, 0], shear - angle.sin(), shift[:, 0]), dim=1),
        torch.stack((angle.sin(), angle.cos() * scale[:, 1], shift[:, 1]), dim=1),
    )
    grid = functional.affine_grid(torch.stack(rows, dim=1), list(pictures.shape), align_corners=False)
    # Outside the picture is 0 to grid_sample, and -1 to us.
    return functional.grid_sample(pictures + 1, grid, align_corners=False) - 1


def _pixels(pictures: NDArray[np.uint8]) -> Tensor:
    return torch.from_numpy(np.stack([to_pixel_values(Image.fromarray(picture), IMAGE) for picture in pictures]))


def _png(picture: NDArray[np.uint8], side: int = SHOWN) -> bytes:
    file = io.BytesIO()
    Image.fromarray(picture).resize((side, side), Image.Resampling.NEAREST).save(file, "PNG", optimize=True)
    return file.getvalue()


def _checkpoint(model: Vit, golden: NDArray[np.uint8]) -> Checkpoint:
    return Checkpoint(
        family="vit",
        description="Handwritten digits, bright ink on a dark ground",
        model=model,
        golden=bundle_pb2.Golden(image_path="golden.png"),
        image=IMAGE,
        labels=tuple(str(digit) for digit in range(10)),
        files={"golden.png": _png(golden)},
    )


CARD = Card(
    name="digits",
    title="handwritten digits",
    summary="Tells which digit a small picture shows.",
    data="""The 1,797 handwritten digits of 43 people that scikit-learn ships (`sklearn.datasets.load_digits`, from
the UCI set "Optical Recognition of Handwritten Digits"), 8 x 8 pixels. A fifth, stratified by label, is the test
split and was never trained on. Training pictures are turned, sheared, scaled and shifted a little.""",
    model="Vision Transformer: 16 patches of 2 x 2 pixels and a class token, 4 layers, width 64, 4 heads; float32.",
    notes="""- Ink is bright and the ground dark, as in the data; a dark digit on white paper must be inverted first.
- A picture of any size is averaged down to 8 x 8 pixels: the digit should fill it.
- The writers of the test split also wrote training pictures; a new hand may be read less well.
- `examples/` holds three pictures of the test split, named by their labels.""",
)
