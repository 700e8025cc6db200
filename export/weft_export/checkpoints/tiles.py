"""A picture's file in tiles, as TilingSpec says of one that is alone in its prompt."""

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from weft_export.checkpoints.picture import opened, resized, scaled
from weft_proto.tiling import Tiled, tiled
from weft_proto.v1 import bundle_pb2


def read_tiles(data: bytes, spec: bundle_pb2.ImageSpec) -> tuple[NDArray[np.float32], Tiled]:
    """Return the tiles of a picture, that of the whole first, [tiles, channels, height, width], and how it is cut.

    If it is no picture, Pillow may raise nearly any exception.
    """
    picture = opened(data, spec)
    cut = tiled(spec, *picture.size)
    rows, columns = cut.grid
    laid = Image.new(picture.mode, (columns * spec.width, rows * spec.height))
    left, top = (laid.width - cut.inner[0]) // 2, (laid.height - cut.inner[1]) // 2
    laid.paste(resized(picture, cut.inner, spec), (left, top))
    corners = [(column * spec.width, row * spec.height) for row in range(rows) for column in range(columns)]
    tiles = [laid.crop((x, y, x + spec.width, y + spec.height)) for x, y in corners]
    whole = resized(picture, (spec.width, spec.height), spec)
    return np.stack([scaled(each, spec) for each in (whole, *tiles)]), cut
