"""Pictures of a prompt that are read at a size near their own, in whole cells, as TilingSpec says.

Exporter and server ask here. The floating-point numbers are those of transformers: their roundings decide.
"""

import math
from typing import NamedTuple

from weft_proto.v1 import bundle_pb2

MAX_ASPECT = 200
"""How many times the shorter side of a picture the longer one may be."""


class Fitted(NamedTuple):
    """A picture of `size` pixels, made of whole cells.

    size: its width and height, as it is shown.
    inner: the width and height that it is resized to.
    grid: rows and columns of cells. Each is a place of the prompt.
    """

    size: tuple[int, int]
    inner: tuple[int, int]
    grid: tuple[int, int]

    @property
    def num_places(self) -> int:
        """Places in a prompt."""
        return self.grid[0] * self.grid[1]


def aspect_fault(width: int, height: int) -> str | None:
    """Say why a picture of so many pixels is not read, or None."""
    if max(width, height) <= MAX_ASPECT * min(width, height):
        return None
    return f"is {width} x {height} pixels; the longer side may be at most {MAX_ASPECT} times the shorter one"


def fit(image: bundle_pb2.ImageSpec, width: int, height: int) -> Fitted:
    """Return how a picture of so many pixels is read. It has no fault of aspect."""
    cell, most, least = image.height, image.tiling.max_pixels, image.tiling.min_pixels
    down, across = round(height / cell) * cell, round(width / cell) * cell
    if down * across > most:
        ratio = math.sqrt((height * width) / most)
        down, across = (max(cell, math.floor(side / ratio / cell) * cell) for side in (height, width))
    elif down * across < least:
        ratio = math.sqrt(least / (height * width))
        down, across = (math.ceil(side * ratio / cell) * cell for side in (height, width))
    return Fitted((width, height), (across, down), (down // cell, across // cell))


def most_fitted(image: bundle_pb2.ImageSpec) -> int:
    """Return a bound of the cells of a picture.

    One of few pixels may be a single row of cells that is longer than max_pixels allows, or have up to one more row and
    column than min_pixels asks for.
    """
    most, least = (pixels / max(1, image.height) ** 2 for pixels in (image.tiling.max_pixels, image.tiling.min_pixels))
    row = math.sqrt(MAX_ASPECT * most)
    raised = least + math.sqrt(least) * (math.sqrt(MAX_ASPECT) + math.sqrt(1 / MAX_ASPECT)) + 1
    return max(1, math.floor(max(most, row, raised)))


def least_fitted(image: bundle_pb2.ImageSpec) -> int:
    """Return a bound of the cells that a picture has at least.

    Of one that is made smaller, both sides are rounded down: each to half of what it was, at worst.
    """
    most, least = (pixels / max(1, image.height) ** 2 for pixels in (image.tiling.max_pixels, image.tiling.min_pixels))
    return max(1, math.ceil(min(least, most / 4)))


def fitting_faults(image: bundle_pb2.ImageSpec) -> dict[str, bool]:
    """Say what may be wrong with such a tiling, and whether it is."""
    tiling = image.tiling
    others = {each.name for each, _ in tiling.ListFields()} - {"max_pixels", "min_pixels"}
    return {
        f"image.tiling.max_pixels is set, and so is {min(others, default='')}": bool(others),
        "image.tiling.min_pixels is missing, or larger than max_pixels": not 1
        <= tiling.min_pixels
        <= tiling.max_pixels,
        "image.tiling.max_pixels is for cells that are one place: grid_rows and grid_columns must be 1": (
            image.grid_rows,
            image.grid_columns,
        )
        != (1, 1),
    }
