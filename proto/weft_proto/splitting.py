"""Pictures of a prompt that are cut by their longest edge, as TilingSpec says: the tiles, and what stands around them.

Exporter and server ask here. The floating-point numbers are those of transformers: their roundings decide.
"""

import math
from typing import NamedTuple

from weft_proto.v1 import bundle_pb2


class Split(NamedTuple):
    """A picture of `size` pixels, cut into tiles.

    size: its width and height, as it is shown.
    first: the width and height that it is resized to at first.
    second: those that this picture is resized to, which are whole tiles.
    grid: rows and columns of tiles. (0, 0): it is not cut, and `second` is one tile.
    """

    size: tuple[int, int]
    first: tuple[int, int]
    second: tuple[int, int]
    grid: tuple[int, int]

    @property
    def num_tiles(self) -> int:
        """Tiles, that of the whole picture too, which is the last."""
        return self.grid[0] * self.grid[1] + 1


def split(image: bundle_pb2.ImageSpec, width: int, height: int) -> Split:
    """Return how a picture of so many pixels is cut."""
    size = width, height
    first = _with_longest(image.tiling.longest_edge, *size)
    if not image.tiling.before_tile:
        return Split(size, first, (image.width, image.height), (0, 0))
    second = _whole_tiles(image.width, *first)
    rows, columns = second[1] // image.height, second[0] // image.width
    return Split(size, first, second, (rows, columns) if rows * columns > 1 else (0, 0))


def most_split(image: bundle_pb2.ImageSpec) -> int:
    """Return how many tiles a picture has at most, that of the whole too."""
    if not image.tiling.before_tile:
        return 1
    longest = image.tiling.longest_edge
    # The shorter side may be one longer than the longer one: it is made even.
    side = -(-(longest + longest % 2) // max(1, image.width))
    return side * side + 1 if side > 1 else 1


def split_text(tiling: bundle_pb2.TilingSpec, grid: tuple[int, int], token: str) -> str:
    """Return what a prompt has in the place of a picture: of each tile `token`, and texts around."""
    rows = ""
    for row in range(1, grid[0] + 1):
        for column in range(1, grid[1] + 1):
            before = tiling.before_tile.replace("{row}", str(row)).replace("{column}", str(column))
            rows += before + token
        rows += tiling.behind_row
    rows += tiling.behind_tiles if rows else ""
    return rows + tiling.before_whole + token + tiling.behind_whole


def _with_longest(longest: int, width: int, height: int) -> tuple[int, int]:
    ratio = width / height
    if width >= height:
        shorter = int(longest / ratio)
        return longest, max(shorter + shorter % 2, 1)
    shorter = int(longest * ratio)
    return max(shorter + shorter % 2, 1), longest


def _whole_tiles(tile: int, width: int, height: int) -> tuple[int, int]:
    ratio = width / height
    if width >= height:
        across = math.ceil(width / tile) * tile
        return across, math.ceil(max(1, int(across / ratio)) / tile) * tile
    down = math.ceil(height / tile) * tile
    # A side of 1 may be rounded to less: 187 * (1 / 187) is below 1. transformers fails there.
    return math.ceil(max(1, int(down * ratio)) / tile) * tile, down
