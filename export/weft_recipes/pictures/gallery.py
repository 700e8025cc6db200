"""Scenes as a model takes them and as people see them, and whether a model points at the things that it names."""

import io
from collections.abc import Callable
from pathlib import Path

import numpy as np
import torch
from PIL import Image
from tokenizers import Tokenizer
from torch import Tensor

from weft_export.checkpoints.picture import to_pixel_values
from weft_export.console import OnProgress
from weft_export.families.writer import Writer
from weft_proto.v1 import bundle_pb2
from weft_recipes.pictures.drawing import render
from weft_recipes.pictures.scene import Scene, sample
from weft_recipes.shared.vocabulary import START

SIDE, PATCH, MAX_TARGET = 64, 8, 32
EXAMPLE_SEED = 32
PICTURE_SIDE = 256
"""Side of the pictures that people see; the model's input is SIDE."""
GRID = SIDE // PATCH
IMAGE = bundle_pb2.ImageSpec(
    channels=3,
    height=SIDE,
    width=SIDE,
    resample=bundle_pb2.RESAMPLE_BILINEAR,
    # About the background: what is empty becomes about 0.
    mean=[0.9] * 3,
    std=[0.3] * 3,
    grid_rows=GRID,
    grid_columns=GRID,
)


Picture = Callable[[Scene, int], Image.Image]
"""Makes a picture of a scene, of so many pixels a side."""


def draw(scenes: list[Scene], on_progress: OnProgress, picture_of: Picture = render) -> Tensor:
    """Return scenes as uint8 [scenes, SIDE, SIDE, 3]."""
    pictures = torch.empty(len(scenes), SIDE, SIDE, 3, dtype=torch.uint8)
    for index, scene in enumerate(scenes):
        pictures[index] = torch.from_numpy(np.asarray(picture_of(scene, SIDE)).copy())
        on_progress(index + 1, len(scenes), "drawing")
    return pictures


def normalize(pictures: Tensor) -> Tensor:
    """Return pixel_values [pictures, 3, SIDE, SIDE] of pictures uint8 [pictures, SIDE, SIDE, 3], as IMAGE says."""
    return (pictures.permute(0, 3, 1, 2).float() / 255 - IMAGE.mean[0]) / IMAGE.std[0]


def examples_of_scenes() -> list[Scene]:
    """Return held-out scenes worth showing: a relation, one thing inside another, and a thing alone."""
    scenes = sample(100, EXAMPLE_SEED, held_out=True)
    tests = (
        lambda scene: scene.relation in ("above", "below"),
        lambda scene: scene.relation == "inside",
        lambda scene: len(scene.things) == 1,
    )
    return [next(filter(test, scenes)) for test in tests]


def write_examples(directory: Path, scenes: list[Scene]) -> None:
    """Write scenes as pictures named by their captions, and nothing else."""
    directory.mkdir(exist_ok=True)
    for old in directory.glob("*.png"):
        old.unlink()
    for scene in scenes:
        (directory / f"{scene.caption.replace(' ', '-')}.png").write_bytes(png(scene))


def write_named_by_things(directory: Path, scenes: list[Scene], picture_of: Picture = render) -> None:
    """Write scenes as pictures named by their things, and nothing else."""
    directory.mkdir(exist_ok=True)
    for old in directory.glob("*.png"):
        old.unlink()
    for scene in scenes:
        name = "-".join(f"{thing.color}-{thing.shape}" for thing in scene.things)
        (directory / f"{name}.png").write_bytes(png(scene, picture_of))


def png(scene: Scene, picture_of: Picture = render) -> bytes:
    """Return a scene as a PNG that people can see."""
    file = io.BytesIO()
    picture_of(scene, PICTURE_SIDE).save(file, "PNG", optimize=True)
    return file.getvalue()


@torch.no_grad()
def measure_pointing(model: Writer, tokenizer: Tokenizer, scenes: list[Scene], layer: int) -> float:
    """Return the share of shape words whose most attended patch lies in the square around their thing."""
    hits = total = 0
    for scene in scenes:
        ids = tokenizer.encode(scene.caption).ids
        pixels = torch.from_numpy(to_pixel_values(render(scene, SIDE), IMAGE))[None]
        target = torch.tensor([[START, *ids[:-1]]])
        weights, _ = model.explain(torch.tensor([layer]), torch.tensor([-1]), target, pixels)
        words = scene.caption.split()
        # A thing is named by its article, size, colour and shape; two things have the relation between them.
        for thing, position in zip(scene.things, (3, len(words) - 1), strict=False):
            row, column = divmod(int(weights[position].argmax()), GRID)
            x, y = (column + 0.5) / GRID, (row + 0.5) / GRID
            reach = thing.radius + 0.5 / GRID
            hits += abs(x - thing.x) <= reach and abs(y - thing.y) <= reach
            total += 1
    return hits / total
