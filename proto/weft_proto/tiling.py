"""Pictures of a prompt in tiles, as TilingSpec says: which tiles, and which of their places.

Exporter and server ask here. The floating-point numbers are those of transformers: their roundings decide.
"""

import math
from typing import NamedTuple

from weft_proto.bundle_rules import MAX_GRID, MAX_IMAGE_PIXELS, MAX_TILES
from weft_proto.v1 import bundle_pb2

# Of so many times as many places as max_tiles tiles have, none are joined; this is the root.
_SLACK = 1.1


class Tiled(NamedTuple):
    """A picture of `size` pixels in tiles.

    size: its width and height, as it is shown.
    grid: rows and columns of tiles.
    inner: the width and height that it is resized to within them, in the middle.
    kept: of the places of all tiles, the first row and column, and the row and column behind the last.
    pooled: rows and columns that the kept ones become.
    """

    size: tuple[int, int]
    grid: tuple[int, int]
    inner: tuple[int, int]
    kept: tuple[int, int, int, int]
    pooled: tuple[int, int]

    @property
    def num_tiles(self) -> int:
        """Tiles, that of the whole picture too."""
        return 1 + self.grid[0] * self.grid[1]

    @property
    def num_places(self) -> int:
        """Places of the tiles in a prompt, ends of rows included, without those of the whole picture."""
        return self.pooled[0] * (self.pooled[1] + 1)


def tiled(image: bundle_pb2.ImageSpec, width: int, height: int) -> Tiled:
    """Return how a picture of so many pixels is cut, where it is alone in its prompt."""
    rows, columns = _grid_of(image, width, height)
    across, down = columns * image.width, rows * image.height
    by_width, by_height = across / width, down / height
    if by_width < by_height:
        inner = across, min(math.ceil(height * by_width), down)
    else:
        inner = min(math.ceil(width * by_height), across), down
    num_rows, num_columns = rows * image.grid_rows, columns * image.grid_columns
    top = left = 0
    if width / height > num_columns / num_rows:
        top = (num_rows - int(round(height * (num_columns / width), 7))) // 2
    else:
        left = (num_columns - int(round(width * (num_rows / height), 7))) // 2
    kept = top, left, num_rows - top, num_columns - left
    seen = num_rows - 2 * top, num_columns - 2 * left
    ratio = math.sqrt(seen[0] * seen[1] / (image.tiling.max_tiles * image.grid_rows**2))
    pooled = (max(1, int(seen[0] // ratio)), max(1, int(seen[1] // ratio))) if ratio > _SLACK else seen
    return Tiled((width, height), (rows, columns), inner, kept, pooled)


def most_tiles(image: bundle_pb2.ImageSpec) -> int:
    """Return how many tiles a picture has at most, that of the whole too."""
    return 1 + max(grid.rows * grid.columns for grid in image.tiling.grids)


def most_places(image: bundle_pb2.ImageSpec) -> int:
    """Return a bound of the places that a picture takes in a prompt."""
    whole = image.num_class_tokens + image.grid_rows * image.grid_columns
    if not image.HasField("tiling"):
        return whole
    left = math.floor(_SLACK**2 * image.tiling.max_tiles * whole)
    tiles = max(
        min(grid.rows * grid.columns * whole, left) + grid.rows * image.grid_rows for grid in image.tiling.grids
    )
    return max(1, tiles) + whole


def tiling_fault(image: bundle_pb2.ImageSpec) -> str | None:
    """Say what is wrong with the tiling of an image, or None."""
    tiling, most = image.tiling, most_places(image) if image.tiling.grids else 0
    others = image.num_class_tokens, image.shortest_edge, image.padding, image.resize_height, image.resize_width
    faults = {
        "image.tiling.grids are missing": not tiling.grids,
        f"image.tiling.grids has one of more than {MAX_TILES} tiles": any(
            grid.rows * grid.columns > MAX_TILES for grid in tiling.grids
        ),
        f"image.tiling.grids has one of more than {MAX_IMAGE_PIXELS:,} pixels": any(
            grid.rows * grid.columns * image.height * image.width > MAX_IMAGE_PIXELS for grid in tiling.grids
        ),
        f"image.tiling.square_padding has {len(tiling.square_padding)} values for {image.channels} channels": len(
            tiling.square_padding
        )
        != image.channels,
        "image.tiling is for square pictures with a square grid": image.height != image.width
        or image.grid_rows != image.grid_columns,
        "image.tiling is set, and so is num_class_tokens, shortest_edge, padding, resize_height or resize_width": any(
            others
        ),
        f"image.tiling gives a picture up to {most:,} places; at most {MAX_GRID:,} are allowed": most > MAX_GRID,
    }
    return next((fault for fault, holds in faults.items() if holds), None)


def _grid_of(image: bundle_pb2.ImageSpec, width: int, height: int) -> tuple[int, int]:
    """Return the rows and columns of the grid in which most of a picture is left."""
    best, most, least_waste = (1, 1), 0, math.inf
    for grid in image.tiling.grids:
        across, down = grid.columns * image.width, grid.rows * image.height
        scale = min(across / width, down / height)
        left = min(int(width * scale) * int(height * scale), width * height)
        waste = across * down - left
        if left > most or (left == most and waste < least_waste):
            best, most, least_waste = (grid.rows, grid.columns), left, waste
    return best
