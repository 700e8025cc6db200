"""A picture's file in tiles, as TilingSpec says of one that is alone in its prompt."""

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from weft_export.checkpoints.picture import opened, resized, scaled
from weft_export.errors import CheckpointError
from weft_proto.fitting import Fitted, aspect_fault, fit
from weft_proto.splitting import split
from weft_proto.tiling import Cut, tiled
from weft_proto.v1 import bundle_pb2


def read_tiles(data: bytes, spec: bundle_pb2.ImageSpec) -> tuple[NDArray[np.float32], Cut]:
    """Return the tiles of a picture in the order in which a prompt has them, and how it is cut.

    Tiles are [tiles, channels, height, width], that of the whole among them. Cells are [1, rows, columns, channels,
    height, width]. If it is no picture, Pillow may raise nearly any exception.

    Raises:
        CheckpointError: it is too long to be read in cells.
    """
    picture = opened(data, spec)
    if spec.tiling.max_pixels:
        if (fault := aspect_fault(*picture.size)) is not None:
            raise CheckpointError(f"the golden picture {fault}")
        fitted = fit(spec, *picture.size)
        return cells_of(scaled(resized(picture, fitted.inner, spec), spec), fitted)[None], fitted
    if spec.tiling.longest_edge:
        cut = split(spec, *picture.size)
        picture = resized(resized(picture, cut.first, spec), cut.second, spec)
        read = [*_tiles(picture, cut.grid, spec), resized(picture, (spec.width, spec.height), spec)]
        return np.stack([scaled(each, spec) for each in read]), cut
    laid_out = tiled(spec, *picture.size)
    rows, columns = laid_out.grid
    laid = Image.new(picture.mode, (columns * spec.width, rows * spec.height))
    left, top = (laid.width - laid_out.inner[0]) // 2, (laid.height - laid_out.inner[1]) // 2
    laid.paste(resized(picture, laid_out.inner, spec), (left, top))
    read = [resized(picture, (spec.width, spec.height), spec), *_tiles(laid, laid_out.grid, spec)]
    return np.stack([scaled(each, spec) for each in read]), laid_out


def cells_of(pixels: NDArray[np.float32], fitted: Fitted) -> NDArray[np.float32]:
    """Return the cells of pixels [channels, height, width], [rows, columns, channels, height, width]."""
    rows, columns = fitted.grid
    channels, height, width = pixels.shape
    laid = pixels.reshape(channels, rows, height // rows, columns, width // columns)
    return np.ascontiguousarray(laid.transpose(1, 3, 0, 2, 4))


def _tiles(picture: Image.Image, grid: tuple[int, int], spec: bundle_pb2.ImageSpec) -> list[Image.Image]:
    corners = [(column * spec.width, row * spec.height) for row in range(grid[0]) for column in range(grid[1])]
    return [picture.crop((x, y, x + spec.width, y + spec.height)) for x, y in corners]
