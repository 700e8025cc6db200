"""A picture's file as a server takes it: of bounded bytes and pixels, decoded to pixel_values as ImageSpec says."""

import io
import math
from contextlib import suppress

import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageFile, ImageOps, UnidentifiedImageError

from weft_export.errors import CheckpointError
from weft_proto.bundle_rules import MAX_IMAGE_BYTES, MAX_IMAGE_PIXELS, PICTURE_FORMATS
from weft_proto.resizing import resized_sizes
from weft_proto.v1 import bundle_pb2

_RESAMPLE = {
    bundle_pb2.RESAMPLE_BILINEAR: Image.Resampling.BILINEAR,
    bundle_pb2.RESAMPLE_BICUBIC: Image.Resampling.BICUBIC,
    bundle_pb2.RESAMPLE_BOX: Image.Resampling.BOX,
    bundle_pb2.RESAMPLE_NEAREST: Image.Resampling.NEAREST,
    bundle_pb2.RESAMPLE_LANCZOS: Image.Resampling.LANCZOS,
    bundle_pb2.RESAMPLE_HAMMING: Image.Resampling.HAMMING,
}


def read_pixel_values(data: bytes, spec: bundle_pb2.ImageSpec) -> NDArray[np.float32]:
    """Return the pixel_values of a picture's file. If it is no picture, Pillow may raise nearly any exception."""
    return _cut(opened(data, spec), spec)


def opened(data: bytes, spec: bundle_pb2.ImageSpec) -> Image.Image:
    """Return the picture of a file, upright and flattened. If it is none, Pillow may raise nearly any exception."""
    with Image.open(io.BytesIO(data), formats=PICTURE_FORMATS) as image:
        if image.format == "PNG":
            _begin(image, depth=data[24])
        return _flattened(image, spec)


def _begin(image: ImageFile.ImageFile, depth: int) -> None:
    """Turn to the first frame of an animated PNG, and take the transparent colour at 8 bits.

    Pillow takes the pixels at 8 bits, but not this colour.

    Raises:
        ValueError: its colours are numbers of a palette that it does not have.
    """
    if image.mode == "P" and image.palette is None:
        raise ValueError("a picture without its palette")
    if getattr(image, "default_image", False):
        image.seek(1)  # what comes before it is for viewers that know no animations
    transparent = image.info.get("transparency")
    if image.mode == "L" and isinstance(transparent, int):
        image.info["transparency"] = transparent * 255 // ((1 << depth) - 1)
    elif image.mode == "RGB" and isinstance(transparent, tuple) and depth == 16:
        image.info["transparency"] = tuple(value >> 8 for value in transparent)


def to_pixel_values(image: Image.Image, spec: bundle_pb2.ImageSpec) -> NDArray[np.float32]:
    """Return pixel_values float32 [channels, height, width]: upright, flattened, resized, cut and scaled."""
    return _cut(_flattened(image, spec), spec)


def _cut(image: Image.Image, spec: bundle_pb2.ImageSpec) -> NDArray[np.float32]:
    for size in resized_sizes(spec, *image.size):
        image = resized(image, size, spec)
    left, top = (image.width - spec.width) // 2, (image.height - spec.height) // 2
    if spec.padding:
        colour = tuple(spec.padding) if spec.channels > 1 else spec.padding[0]
        picture, image = image, Image.new(image.mode, (spec.width, spec.height), colour)
        image.paste(picture, ((spec.width - picture.width) // 2, (spec.height - picture.height) // 2))
    else:
        image = image.crop((left, top, left + spec.width, top + spec.height))
    return scaled(image, spec)


def _flattened(image: Image.Image, spec: bundle_pb2.ImageSpec) -> Image.Image:
    with suppress(Exception):  # metadata that cannot be read says nothing about how the picture stands
        image = ImageOps.exif_transpose(image)
    if image.mode.startswith("I"):
        # 16-bit greys, which Pillow would clip to 255.
        greys = np.asarray(image).astype(np.uint32).clip(0, 65535)
        eights = ((greys + 128) // 257).astype(np.uint8)
        eights[greys == image.info.get("transparency", -1)] = 255
        image = Image.fromarray(eights)
    elif image.has_transparency_data:
        rgba = image.convert("RGBA")
        image = Image.alpha_composite(Image.new("RGBA", rgba.size, "white"), rgba)
    if image.mode not in ("1", "L"):
        image = image.convert("RGB")
    return image.convert("L" if spec.channels == 1 else "RGB")


def resized(image: Image.Image, size: tuple[int, int], spec: bundle_pb2.ImageSpec) -> Image.Image:
    """Return a picture of another width and height."""
    return image if image.size == size else image.resize(size, _RESAMPLE[spec.resample])


def scaled(image: Image.Image, spec: bundle_pb2.ImageSpec) -> NDArray[np.float32]:
    """Return the values of a picture's pixels, float32 [channels, height, width]."""
    values = np.asarray(image, dtype=np.float32).reshape(image.height, image.width, spec.channels) / np.float32(255)
    mean, std = np.array(spec.mean, dtype=np.float32), np.array(spec.std, dtype=np.float32)
    return np.ascontiguousarray(((values - mean) / std).transpose(2, 0, 1))


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
    if width and spec.shortest_edge and math.prod(resized := resized_sizes(spec, width, height)[0]) > MAX_IMAGE_PIXELS:
        allowed = f"a server makes at most {MAX_IMAGE_PIXELS} of it"
        raise CheckpointError(f"{what} would have {resized[0]} x {resized[1]} pixels when it is resized; {allowed}")
    try:
        return read_pixel_values(data, spec)
    except Exception as error:  # a broken picture makes Pillow raise nearly anything
        # What it says of a file that it does not know is the address of an object.
        reason = "" if isinstance(error, UnidentifiedImageError) else f": {error}"
        raise CheckpointError(f"{what} is not a PNG, JPEG or WebP picture{reason}") from error
