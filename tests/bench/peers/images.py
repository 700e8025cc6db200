"""The pictures of workload e, and what a model is given of them."""

import json

import numpy as np
from PIL import Image
from workloads import NUM_IMAGES

SIZE = 224


def write_images(folder):
    """Write NUM_IMAGES pictures of coloured squares in noise, always the same ones, to `folder`/images/<n>.png."""
    directory = folder / "images"
    directory.mkdir(parents=True, exist_ok=True)
    for index in range(NUM_IMAGES):
        drawn = np.random.default_rng(index)
        # As large as a photograph of its size, so that decoding costs as much.
        pixels = drawn.integers(0, 24, (SIZE, SIZE, 3)) + drawn.integers(0, 200, 3)
        for _ in range(4):
            top, left = drawn.integers(0, SIZE - 32, 2)
            height, width = drawn.integers(32, 128, 2)
            pixels[top : top + height, left : left + width] = drawn.integers(0, 255, 3)
        Image.fromarray(pixels.astype(np.uint8)).save(directory / f"{index}.png")


def pixel_values(folder, names):
    """The pictures `folder`/images/<name> as float32 [pictures, 3, 224, 224], scaled as `folder`/checkpoint says."""
    spec = json.loads((folder / "checkpoint" / "config.json").read_text())["image"]
    mean, std = (np.array(spec[key], np.float32) for key in ("mean", "std"))
    pictures = [np.asarray(Image.open(folder / "images" / name), np.float32) / 255 for name in names]
    return ((np.stack(pictures) - mean) / std).transpose(0, 3, 1, 2).astype(np.float32)
