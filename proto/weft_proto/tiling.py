"""Pictures of a prompt in tiles, as TilingSpec says: which tiles, and which of their places.

Exporter and server ask here. The floating-point numbers are those of transformers: their roundings decide.
"""

import math
from collections.abc import Sequence
from typing import NamedTuple

from weft_proto.bundle_rules import MAX_GRID, MAX_IMAGE_PIXELS, MAX_TILES, TILE_TEXTS
from weft_proto.fitting import Fitted, fit, fitting_faults, most_fitted
from weft_proto.questions import picture_places
from weft_proto.splitting import Split, most_split, split
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


Cut = Tiled | Split | Fitted
"""How a picture of a prompt is read that is more than one tile."""


def cuts(image: bundle_pb2.ImageSpec, sizes: Sequence[tuple[int, int]]) -> list[Cut | None]:
    """Return how each of the pictures of a prompt is cut, by its width and height. None: it is read as one tile."""
    if image.tiling.max_pixels:
        return [fit(image, *size) for size in sizes]
    if image.tiling.longest_edge:
        return [split(image, *size) for size in sizes]
    if len(sizes) == 1 and image.tiling.grids:
        return [tiled(image, *sizes[0])]
    return [None] * len(sizes)


def cuts_some(image: bundle_pb2.ImageSpec, num_pictures: int) -> bool:
    """Whether any of so many pictures of a prompt is cut."""
    each = image.tiling.longest_edge or image.tiling.max_pixels
    return bool(each) or (num_pictures == 1 and bool(image.tiling.grids))


def places_of(image: bundle_pb2.ImageSpec, cut: Cut | None) -> list[int]:
    """Return how many places a picture takes in its prompt, one number for each stretch of them."""
    if isinstance(cut, Fitted):
        return [cut.num_places]
    whole = picture_places(image)
    if isinstance(cut, Split):
        return [whole] * cut.num_tiles
    return [whole if cut is None else whole - 1 + cut.num_places]


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
    if image.tiling.max_pixels:
        return most_fitted(image)
    if image.tiling.longest_edge:
        return most_split(image)
    return 1 + max(grid.rows * grid.columns for grid in image.tiling.grids)


def most_places(image: bundle_pb2.ImageSpec) -> int:
    """Return a bound of the places that a picture takes in a prompt."""
    if image.tiling.max_pixels:
        return most_fitted(image)
    whole = image.num_class_tokens + image.grid_rows * image.grid_columns
    if not image.tiling.grids:
        return most_split(image) * whole if image.tiling.longest_edge else whole
    left = math.floor(_SLACK**2 * image.tiling.max_tiles * whole)
    tiles = max(
        min(grid.rows * grid.columns * whole, left) + grid.rows * image.grid_rows for grid in image.tiling.grids
    )
    return max(1, tiles) + whole


def tiling_fault(image: bundle_pb2.ImageSpec) -> str | None:
    """Say what is wrong with the tiling of an image, or None."""
    others = image.num_class_tokens, image.shortest_edge, image.padding, image.resize_height, image.resize_width
    faults = {
        **_faults_of_kind(image),
        "image.tiling is for square pictures with a square grid": image.height != image.width
        or image.grid_rows != image.grid_columns,
        "image.tiling is set, and so is num_class_tokens, shortest_edge, padding, resize_height or resize_width": any(
            others
        ),
    }
    fault = next((fault for fault, holds in faults.items() if holds), None)
    if fault is None and (most := most_places(image)) > MAX_GRID:
        return f"image.tiling gives a picture up to {most:,} places; at most {MAX_GRID:,} are allowed"
    return fault


def _faults_of_kind(image: bundle_pb2.ImageSpec) -> dict[str, bool]:
    if image.tiling.max_pixels:
        pixels = most_fitted(image) * image.height * image.width
        too_large = f"image.tiling.max_pixels makes a picture of more than {MAX_IMAGE_PIXELS:,} pixels"
        return {**fitting_faults(image), too_large: pixels > MAX_IMAGE_PIXELS}
    return _faults_of_splitting(image) if image.tiling.longest_edge else _faults_of_grids(image)


def _faults_of_grids(image: bundle_pb2.ImageSpec) -> dict[str, bool]:
    tiling = image.tiling
    return {
        "image.tiling.grids are missing": not tiling.grids,
        "image.tiling.max_tiles is missing": not tiling.max_tiles,
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
        "image.tiling has texts around tiles, and no longest_edge": any(getattr(tiling, name) for name in TILE_TEXTS),
    }


def _faults_of_splitting(image: bundle_pb2.ImageSpec) -> dict[str, bool]:
    tiling, most = image.tiling, most_split(image)
    return {
        "image.tiling.longest_edge is set, and so are grids, max_tiles or square_padding": any(
            (tiling.grids, tiling.max_tiles, tiling.square_padding)
        ),
        f"image.tiling.longest_edge makes {most - 1:,} tiles of a picture; at most {MAX_TILES} are allowed": most - 1
        > MAX_TILES,
        f"image.tiling.longest_edge makes a picture of more than {MAX_IMAGE_PIXELS:,} pixels": (most - 1)
        * image.height
        * image.width
        > MAX_IMAGE_PIXELS,
    }


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
