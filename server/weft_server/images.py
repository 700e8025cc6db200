"""Encoded pictures to pixel values, as a bundle's ImageSpec says. Runs in worker threads; Pillow frees the GIL."""

import io
import warnings

import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageOps, UnidentifiedImageError

from weft_proto.v1 import bundle_pb2
from weft_server.errors import InvalidRequest

FORMATS = ("PNG", "JPEG", "WEBP")
FIELD = "image.data"
# A progressive JPEG may go over all its pixels again and again, 33 bytes a time; real ones have about ten scans.
JPEG_SCAN = b"\xff\xda"
MAX_JPEG_SCANS = 100
# The limit on pixels is the server's setting and checked below; Pillow's own is another number, and partly a warning.
Image.MAX_IMAGE_PIXELS = None
# What is wrong with a picture goes to its sender as an error, or nowhere.
warnings.filterwarnings("ignore", module=r"PIL\.")

_RESAMPLE = {
    bundle_pb2.RESAMPLE_BILINEAR: Image.Resampling.BILINEAR,
    bundle_pb2.RESAMPLE_BICUBIC: Image.Resampling.BICUBIC,
    bundle_pb2.RESAMPLE_BOX: Image.Resampling.BOX,
}


def load_pixels(data: bytes, spec: bundle_pb2.ImageSpec, max_bytes: int, max_pixels: int) -> NDArray[np.float32]:
    """Return pixel values float32 [channels, height, width] of a PNG, JPEG or WebP file.

    The picture is taken as a viewer shows it: upright by its EXIF orientation, an animation's first frame, transparency
    over white, 16-bit greys scaled to 8 bits.

    Raises:
        InvalidRequest: the file or its header's pixel count is too large, or it cannot be decoded to the end.
    """
    if not data:
        raise InvalidRequest(FIELD, "must not be empty", "EMPTY_INPUT")
    if len(data) > max_bytes:
        raise InvalidRequest(FIELD, f"has {len(data)} bytes; at most {max_bytes} are taken", "IMAGE_TOO_LARGE")
    try:
        image: Image.Image = Image.open(io.BytesIO(data), formats=FORMATS)
    except UnidentifiedImageError:
        raise InvalidRequest(FIELD, "is not a PNG, JPEG or WebP picture", "BAD_IMAGE") from None
    except Exception as error:  # a hostile header makes Pillow raise nearly anything
        raise _broken() from error
    width, height = image.size
    if width * height > max_pixels:
        message = f"is {width} x {height} pixels by its header; at most {max_pixels} are taken"
        raise InvalidRequest(FIELD, message, "IMAGE_TOO_LARGE")
    # One whose header speaks of more pictures is an MPO to Pillow.
    if image.format in {"JPEG", "MPO"} and data.count(JPEG_SCAN) > MAX_JPEG_SCANS:
        raise InvalidRequest(FIELD, f"has more than {MAX_JPEG_SCANS} scans", "BAD_IMAGE")
    try:
        image.load()
        image = _flatten(_upright(image), "L" if spec.channels == 1 else "RGB")
        image = image.resize((spec.width, spec.height), _RESAMPLE[spec.resample])
    except Exception as error:
        raise _broken() from error
    mean, std = np.array(spec.mean, np.float32), np.array(spec.std, np.float32)
    pixels = np.asarray(image, np.float32).reshape(spec.height, spec.width, spec.channels)
    return np.ascontiguousarray(((pixels / np.float32(255) - mean) / std).transpose(2, 0, 1))


def _broken() -> InvalidRequest:
    return InvalidRequest(FIELD, "is truncated or corrupt", "BAD_IMAGE")


def _upright(image: Image.Image) -> Image.Image:
    try:
        return ImageOps.exif_transpose(image)
    except Exception:  # noqa: BLE001 - metadata that cannot be read says nothing about how the picture stands
        return image


def _flatten(image: Image.Image, mode: str) -> Image.Image:
    """Convert any mode to L or RGB, over white where it is transparent."""
    if image.mode.startswith("I"):
        # 16-bit greys; Pillow's own conversion would clip them to 255.
        greys = np.asarray(image).astype(np.uint32).clip(0, 65535)
        image = Image.fromarray(((greys + 128) // 257).astype(np.uint8))
    elif image.has_transparency_data:
        rgba = image.convert("RGBA")
        image = Image.alpha_composite(Image.new("RGBA", image.size, "white"), rgba)
    if mode == "L" and image.mode not in {"1", "L"}:
        image = image.convert("RGB")
    return image.convert(mode)
