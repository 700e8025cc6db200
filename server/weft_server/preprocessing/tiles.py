"""Pictures of a prompt in tiles, as TilingSpec says: their pixels, and what their features become in the prompt."""

from __future__ import annotations

from math import isqrt
from typing import TYPE_CHECKING

import numpy as np
from PIL import Image

from weft_server.errors import InvalidRequest
from weft_server.preprocessing.image_file import FIELD
from weft_server.preprocessing.images import decoded, pixel_values, resized
from weft_server.source import PlaceGrid, Region

if TYPE_CHECKING:
    from collections.abc import Iterator

    from numpy.typing import NDArray

    from weft_proto.fitting import Fitted
    from weft_proto.splitting import Split
    from weft_proto.tiling import Tiled
    from weft_proto.v1 import bundle_pb2
    from weft_server.preprocessing.images import PictureBounds
    from weft_server.preprocessing.wanted import Wanted

# A strip of a square that a picture is put into. The whole one may have many times the picture's pixels.
_STRIP_PIXELS = 1 << 20


def load_tiles(
    data: bytes, spec: bundle_pb2.ImageSpec, bounds: PictureBounds, cut: Tiled, wanted: Wanted
) -> list[NDArray[np.float32]]:
    """Return the tiles of a picture that is alone in its prompt, that of the whole first, [channels, height, width].

    `cut` says how it is cut, by its size. Raises as `load_picture` does, and where the picture has another size.
    """
    picture = _of_size(decoded(data, spec, bounds, wanted), cut.size)
    rows, columns = cut.grid
    laid = Image.new(picture.mode, (columns * spec.width, rows * spec.height))
    corner = (laid.width - cut.inner[0]) // 2, (laid.height - cut.inner[1]) // 2
    laid.paste(resized(picture, cut.inner, spec), corner)
    tiles = [pixel_values(resized(picture, (spec.width, spec.height), spec), spec)]
    for row in range(rows):
        wanted.check()
        for left in range(0, laid.width, spec.width):
            tile = laid.crop((left, row * spec.height, left + spec.width, (row + 1) * spec.height))
            tiles.append(pixel_values(tile, spec))
    return tiles


def load_split(
    data: bytes, spec: bundle_pb2.ImageSpec, bounds: PictureBounds, cut: Split, wanted: Wanted
) -> list[NDArray[np.float32]]:
    """Return the tiles of a picture that is cut by its longest edge, the whole last, [channels, height, width].

    Raises as `load_tiles` does.
    """
    picture = _of_size(decoded(data, spec, bounds, wanted), cut.size)
    # Each time the colours are rounded.
    picture = resized(picture, cut.first, spec)
    wanted.check()
    picture = resized(picture, cut.second, spec)
    wanted.check()
    corners = [(column * spec.width, row * spec.height) for row in range(cut.grid[0]) for column in range(cut.grid[1])]
    tiles = [picture.crop((x, y, x + spec.width, y + spec.height)) for x, y in corners]
    return [pixel_values(each, spec) for each in (*tiles, resized(picture, (spec.width, spec.height), spec))]


def load_cells(
    data: bytes, spec: bundle_pb2.ImageSpec, bounds: PictureBounds, cut: Fitted, wanted: Wanted
) -> NDArray[np.float32]:
    """Return the cells of a picture, [rows, columns, channels, height, width]. Raises as `load_tiles` does."""
    picture = _of_size(decoded(data, spec, bounds, wanted), cut.size)
    wanted.check()
    rows, columns = cut.grid
    laid = pixel_values(resized(picture, cut.inner, spec), spec)
    laid = laid.reshape(spec.channels, rows, spec.height, columns, spec.width)
    return np.ascontiguousarray(laid.transpose(1, 3, 0, 2, 4))


def _of_size(picture: Image.Image, size: tuple[int, int]) -> Image.Image:
    if picture.size != size:
        raise InvalidRequest(FIELD, "is not as large as its header says", "BAD_IMAGE")
    return picture


def load_square(data: bytes, spec: bundle_pb2.ImageSpec, bounds: PictureBounds, wanted: Wanted) -> NDArray[np.float32]:
    """Return the one tile of a picture that is one of several, [channels, height, width]. Raises as `load_picture`."""
    picture = decoded(data, spec, bounds, wanted)
    side = max(picture.size)
    if spec.width * side > bounds.max_pixels:
        message = f"is {picture.width} x {picture.height} pixels, and would be {spec.width} x {side} for this model"
        raise InvalidRequest(FIELD, f"{message}; at most {bounds.max_pixels} are taken", "IMAGE_TOO_LARGE")
    colour = tuple(spec.tiling.square_padding) if spec.channels > 1 else spec.tiling.square_padding[0]
    # Pillow makes the width what it is to be before the height, row by row: so it may be given strips of rows.
    narrow = Image.new(picture.mode, (spec.width, side), colour)
    left, top = (side - picture.width) // 2, (side - picture.height) // 2
    for first, last in _strips(picture.height, side):
        wanted.check()
        strip = Image.new(picture.mode, (side, last - first), colour)
        strip.paste(picture.crop((0, first, picture.width, last)), (left, 0))
        narrow.paste(resized(strip, (spec.width, last - first), spec), (0, top + first))
    return pixel_values(resized(narrow, (spec.width, spec.height), spec), spec)


def split_regions(cut: Split) -> list[Region | None]:
    """Return where the tiles of a picture that is cut by its longest edge lie on it. None: on the whole of it."""
    rows, columns = cut.grid
    cells = ((row, column) for row in range(rows) for column in range(columns))
    found = [Region(at / columns, row / rows, (at + 1) / columns, (row + 1) / rows) for row, at in cells]
    return [*found, None]


def square_region(width: int, height: int) -> Region:
    """Return where the square lies that `load_square` puts a picture of so many pixels into: partly outside of it."""
    side = max(width, height)
    left, top = (side - width) // 2, (side - height) // 2
    return Region(-left / width, -top / height, (side - left) / width, (side - top) / height)


def tile_grid(spec: bundle_pb2.ImageSpec, cut: Tiled) -> PlaceGrid:
    """Return how the places of a picture's tiles lie on it, behind those of the whole. A row has one more, its end."""
    (rows, columns), (top, left, bottom, right) = cut.grid, cut.kept
    # In shares of what the tiles show together, and then in those of the picture in their middle.
    across, down = columns * spec.width, rows * spec.height
    corner = (across - cut.inner[0]) // 2, (down - cut.inner[1]) // 2
    wide, high = across / (columns * spec.grid_columns), down / (rows * spec.grid_rows)
    region = Region(
        (left * wide - corner[0]) / cut.inner[0],
        (top * high - corner[1]) / cut.inner[1],
        (right * wide - corner[0]) / cut.inner[0],
        (bottom * high - corner[1]) / cut.inner[1],
    )
    return PlaceGrid(spec.grid_rows * spec.grid_columns, *cut.pooled, cut.pooled[1] + 1, region)


def _strips(height: int, width: int) -> Iterator[tuple[int, int]]:
    step = max(1, _STRIP_PIXELS // width)
    yield from ((first, min(first + step, height)) for first in range(0, height, step))


def arranged(features: NDArray[np.float32], cut: Tiled) -> NDArray[np.float32]:
    """Return what a prompt has in the place of a picture, [places, width].

    features: of its tiles, that of the whole first, and behind each what ends a row: [tiles, places + 1, width].
    """
    (rows, columns), (top, left, bottom, right) = cut.grid, cut.kept
    num_places, width = features.shape[1] - 1, features.shape[2]
    side = isqrt(num_places)
    laid = features[1:, :-1].reshape(rows, columns, side, side, width).transpose(0, 2, 1, 3, 4)
    laid = laid.reshape(rows * side, columns * side, width)[top:bottom, left:right]
    found = np.empty((num_places + cut.num_places, width), np.float32)
    found[:num_places] = features[0, :-1]
    lines = found[num_places:].reshape(cut.pooled[0], cut.pooled[1] + 1, width)
    lines[:, :-1] = laid if laid.shape[:2] == cut.pooled else _joined(laid, *cut.pooled)
    lines[:, -1] = features[0, -1]
    return found


def _joined(laid: NDArray[np.float32], num_rows: int, num_columns: int) -> NDArray[np.float32]:
    """Return fewer places, each between the four around its middle, as torch's bilinear interpolation."""
    upper, lower, down = _between(laid.shape[0], num_rows)
    before, behind, across = _between(laid.shape[1], num_columns)
    across = across[:, None]
    found = np.empty((num_rows, num_columns, laid.shape[2]), np.float32)
    # Row by row: all at once would take several times what the places take.
    for row in range(num_rows):
        first, second = laid[upper[row]], laid[lower[row]]
        above = first[before] * (1 - across) + first[behind] * across
        below = second[before] * (1 - across) + second[behind] * across
        found[row] = above * (1 - down[row]) + below * down[row]
    return found


def _between(size: int, count: int) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.float32]]:
    """Return between which two of `size` places each of `count` lies, and how near it is to the second."""
    half = np.float32(0.5)
    at = np.maximum((np.arange(count, dtype=np.float32) + half) * np.float32(size / count) - half, 0)
    first = at.astype(np.int64)
    return first, np.minimum(first + 1, size - 1), at - first.astype(np.float32)
