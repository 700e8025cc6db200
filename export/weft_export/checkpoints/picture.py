"""A picture's file as a server takes it: of bounded bytes and pixels, and one that can be decoded."""

import io
import math
from contextlib import suppress

import numpy as np
from numpy.typing import NDArray
from PIL import Image, UnidentifiedImageError

from weft_export.checkpoints.pixels import read_pixel_values
from weft_export.errors import CheckpointError
from weft_proto.bundle_rules import MAX_IMAGE_BYTES, MAX_IMAGE_PIXELS, resized_size
from weft_proto.v1 import bundle_pb2


def read_picture(what: str, data: bytes, spec: bundle_pb2.ImageSpec) -> NDArray[np.float32]:
    """Return the pixel_values of a picture's file.

    Raises:
        CheckpointError: it begins with `what`, and says that it is too large, or no picture.
    """
    if len(data) > MAX_IMAGE_BYTES:
        raise CheckpointError(f"{what} has {len(data)} bytes; a server takes pictures of {MAX_IMAGE_BYTES}")
    width = height = 0
    with suppress(Exception), Image.open(io.BytesIO(data)) as image:  # what is no picture is named when it is read
        width, height = image.size
    if width * height > MAX_IMAGE_PIXELS:
        allowed = f"a server takes pictures of {MAX_IMAGE_PIXELS} in all"
        raise CheckpointError(f"{what} has {width} x {height} pixels; {allowed}")
    if width and spec.shortest_edge and math.prod(resized := resized_size(spec, width, height)) > MAX_IMAGE_PIXELS:
        allowed = f"a server makes at most {MAX_IMAGE_PIXELS} of it"
        raise CheckpointError(f"{what} would have {resized[0]} x {resized[1]} pixels when it is resized; {allowed}")
    try:
        return read_pixel_values(data, spec)
    except Exception as error:  # a broken picture makes Pillow raise nearly anything
        # What it says of a file that it does not know is the address of an object.
        reason = "" if isinstance(error, UnidentifiedImageError) else f": {error}"
        raise CheckpointError(f"{what} is not a PNG, JPEG or WebP picture{reason}") from error
