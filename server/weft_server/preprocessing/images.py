"""Encoded pictures to pixel values, as a bundle's ImageSpec says. Runs in worker threads: Pillow frees the GIL."""

import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from PIL import ExifTags, Image, ImageFile, ImageOps, UnidentifiedImageError

from weft_proto.bundle_rules import PICTURE_FORMATS
from weft_proto.resizing import resized_size, resized_sizes
from weft_proto.v1 import bundle_pb2
from weft_server.errors import InvalidRequest, RequestError
from weft_server.preprocessing.image_file import BLOCK, FIELD, BoundedImageFile, num_scans, without_metadata
from weft_server.preprocessing.wanted import Wanted
from weft_server.source import Region

# A progressive JPEG can go over all its pixels again and again, for 33 bytes each time. A real one does so 10 times, or
# 18.
MAX_SCANS = 100
# Scans of a picture with as many pixels as are taken. Smaller pictures may have more.
MAX_FULL_SCANS = 20
# The limit on pixels is a setting of the server, and checked below. Pillow's own limit is another number, and partly
# only a warning.
Image.MAX_IMAGE_PIXELS = None
# What is wrong with a picture is told to its sender, or to nobody.
warnings.filterwarnings("ignore", module=r"PIL\.")

_RESAMPLE = {
    bundle_pb2.RESAMPLE_BILINEAR: Image.Resampling.BILINEAR,
    bundle_pb2.RESAMPLE_BICUBIC: Image.Resampling.BICUBIC,
    bundle_pb2.RESAMPLE_BOX: Image.Resampling.BOX,
    bundle_pb2.RESAMPLE_NEAREST: Image.Resampling.NEAREST,
    bundle_pb2.RESAMPLE_LANCZOS: Image.Resampling.LANCZOS,
    bundle_pb2.RESAMPLE_HAMMING: Image.Resampling.HAMMING,
}
# Orientations of EXIF in which a picture's height stands where its width does.
_LYING = frozenset({5, 6, 7, 8})


class LoadedImage(NamedTuple):
    """Pixel values float32 [channels, height, width], and the part of the picture that they show. None: all of it."""

    pixels: NDArray[np.float32]
    region: Region | None


def load_picture(
    data: bytes, spec: bundle_pb2.ImageSpec, max_bytes: int, max_pixels: int, wanted: Wanted | None = None
) -> LoadedImage:
    """Return what a model sees of a PNG, JPEG or WebP file.

    The picture is taken as a viewer shows it: upright by its EXIF orientation, an animation's first frame, transparency
    over white, 16-bit greys scaled to 8 bits.

    Raises:
        InvalidRequest: the file or its header's pixel count is too large, it is so long that it would be too large when
            it is resized, it costs too much to decode, or it cannot be decoded to the end.
        DeadlineExpired: it is not wanted any more.
    """
    bounds, wanted = PictureBounds(max_bytes, max_pixels), wanted or Wanted()
    picture = _open(data, bounds, wanted)
    _check_resized(spec, *picture.size, max_pixels)
    image = _decoded(picture, data, spec, bounds, wanted)
    with _whole():
        seen = image
        for size in resized_sizes(spec, *image.size):
            seen = resized(seen, size, spec)
        seen = _cut(seen, spec)
    return LoadedImage(pixel_values(seen, spec), shown_region(spec, *image.size))


class PictureBounds(NamedTuple):
    """How large the file of a picture may be, and how many pixels it may have."""

    max_bytes: int
    max_pixels: int


def shown_size(data: bytes, bounds: PictureBounds, wanted: Wanted) -> tuple[int, int]:
    """Return the width and height of a picture as a viewer shows it, by its header. Raises as `load_picture` does."""
    picture = _open(data, bounds, wanted)
    width, height = picture.size
    try:
        # A PNG's own method would decode it, to see what stands behind its pixels: that has been put before them.
        turn = Image.Image.getexif(picture).get(ExifTags.Base.Orientation, 1)
    except Exception:  # noqa: BLE001 - as in _upright
        turn = 1
    return (height, width) if turn in _LYING else (width, height)


def decoded(data: bytes, spec: bundle_pb2.ImageSpec, bounds: PictureBounds, wanted: Wanted) -> Image.Image:
    """Return a picture as a viewer shows it, of as many channels as a model reads. Raises as `load_picture` does."""
    return _decoded(_open(data, bounds, wanted), data, spec, bounds, wanted)


def resized(image: Image.Image, size: tuple[int, int], spec: bundle_pb2.ImageSpec) -> Image.Image:
    """Return a picture of another width and height."""
    return image.resize(size, _RESAMPLE[spec.resample])


def pixel_values(image: Image.Image, spec: bundle_pb2.ImageSpec) -> NDArray[np.float32]:
    """Return what a model reads of a picture that has its final size, float32 [channels, height, width]."""
    mean, std = np.array(spec.mean, np.float32), np.array(spec.std, np.float32)
    pixels = np.asarray(image, np.float32).reshape(image.height, image.width, spec.channels)
    return np.ascontiguousarray(((pixels / np.float32(255) - mean) / std).transpose(2, 0, 1))


@contextmanager
def _whole() -> Iterator[None]:
    """Let what Pillow raises over a broken picture be told by its place."""
    try:
        yield
    except RequestError:
        raise
    except Exception as error:
        raise _broken() from error


def _decoded(
    picture: ImageFile.ImageFile, data: bytes, spec: bundle_pb2.ImageSpec, bounds: PictureBounds, wanted: Wanted
) -> Image.Image:
    width, height = picture.size
    if picture.format in {"JPEG", "MPO"}:  # to Pillow, one whose header speaks of more pictures is an MPO
        _check_scans(num_scans(data), width * height, MAX_FULL_SCANS * bounds.max_pixels)
    with _whole():
        _load(picture, data)
        wanted.check()
        image = _flatten(_upright(picture), "L" if spec.channels == 1 else "RGB")
        wanted.check()
    return image


def _open(data: bytes, bounds: PictureBounds, wanted: Wanted) -> ImageFile.ImageFile:
    if not data:
        raise InvalidRequest(FIELD, "must not be empty", "EMPTY_INPUT")
    if len(data) > bounds.max_bytes:
        raise InvalidRequest(FIELD, f"has {len(data)} bytes; at most {bounds.max_bytes} are taken", "IMAGE_TOO_LARGE")
    picture = _opened(data, wanted)
    width, height = picture.size
    if width * height > bounds.max_pixels:
        message = f"is {width} x {height} pixels by its header; at most {bounds.max_pixels} are taken"
        raise InvalidRequest(FIELD, message, "IMAGE_TOO_LARGE")
    return picture


def _opened(data: bytes, wanted: Wanted) -> ImageFile.ImageFile:
    try:
        return Image.open(BoundedImageFile(without_metadata(data), wanted), formats=PICTURE_FORMATS)
    except UnidentifiedImageError:
        raise InvalidRequest(FIELD, "is not a PNG, JPEG or WebP picture", "BAD_IMAGE") from None
    except RequestError:
        raise
    except Exception as error:  # a hostile header makes Pillow raise nearly anything
        raise _broken() from error


def _broken() -> InvalidRequest:
    return InvalidRequest(FIELD, "is truncated or corrupt", "BAD_IMAGE")


def _check_resized(spec: bundle_pb2.ImageSpec, width: int, height: int, max_pixels: int) -> None:
    """Refuse a picture whose aspect would make it too large: one of 1 x 1,000,000, with its shorter side made 224."""
    resized_width, resized_height = resized_sizes(spec, width, height)[0]
    if spec.shortest_edge and resized_width * resized_height > max_pixels:
        message = f"is {width} x {height} pixels, and would be {resized_width} x {resized_height} for this model"
        raise InvalidRequest(FIELD, f"{message}; at most {max_pixels} are taken", "IMAGE_TOO_LARGE")


def _check_scans(scans: int, num_pixels: int, most: int) -> None:
    if scans > MAX_SCANS:
        raise InvalidRequest(FIELD, f"has {scans} scans; at most {MAX_SCANS} are taken", "IMAGE_TOO_LARGE")
    if scans * num_pixels > most:
        message = f"has {scans} scans of {num_pixels} pixels; at most {most} pixels are scanned"
        raise InvalidRequest(FIELD, message, "IMAGE_TOO_LARGE")


def _load(image: ImageFile.ImageFile, data: bytes) -> None:
    """Decode the picture that a viewer shows."""
    image.decodermaxblock = BLOCK
    if image.format == "PNG":
        if image.mode == "P" and image.palette is None:
            raise ValueError("colours by number, and no palette that they are numbers of")
        if getattr(image, "default_image", False):
            image.seek(1)  # frames before it are for viewers that know no animations
        depth, transparent = data[24], image.info.get("transparency")
        if image.mode == "L" and isinstance(transparent, int):
            image.info["transparency"] = transparent * 255 // ((1 << depth) - 1)
        elif image.mode == "RGB" and isinstance(transparent, tuple) and depth == 16:
            image.info["transparency"] = tuple(value >> 8 for value in transparent)
    image.load()


def _upright(image: Image.Image) -> Image.Image:
    try:
        return ImageOps.exif_transpose(image)
    except Exception:  # noqa: BLE001 - metadata that cannot be read says nothing about how the picture stands
        return image


def shown_region(spec: bundle_pb2.ImageSpec, width: int, height: int) -> Region | None:
    """Return the part of a picture of so many pixels that pixel values show, some of it perhaps outside. None: all."""
    resized_width, resized_height = resized_size(spec, width, height)
    plain = spec.padding and not spec.shortest_edge
    if plain or (resized_width, resized_height) == (spec.width, spec.height):
        return None
    left, top, right, bottom = _middle(spec, resized_width, resized_height)
    return Region(left / resized_width, top / resized_height, right / resized_width, bottom / resized_height)


def _middle(spec: bundle_pb2.ImageSpec, width: int, height: int) -> tuple[int, int, int, int]:
    """Return what is cut out, or a page around a picture; what cannot be halved is below and to the right."""
    left, top = int((width - spec.width) / 2), int((height - spec.height) / 2)
    return left, top, left + spec.width, top + spec.height


def _cut(image: Image.Image, spec: bundle_pb2.ImageSpec) -> Image.Image:
    """Cut the middle out of a picture, or put it into that of a colour."""
    if image.size == (spec.width, spec.height):
        return image
    return _padded(image, spec) if spec.padding else image.crop(_middle(spec, *image.size))


def _padded(image: Image.Image, spec: bundle_pb2.ImageSpec) -> Image.Image:
    """Put a picture into the middle of a colour."""
    colour = tuple(spec.padding) if spec.channels > 1 else spec.padding[0]
    whole = Image.new(image.mode, (spec.width, spec.height), colour)
    whole.paste(image, ((spec.width - image.width) // 2, (spec.height - image.height) // 2))
    return whole


def _flatten(image: Image.Image, mode: str) -> Image.Image:
    """Convert any mode to L or RGB, over white where it is transparent."""
    if image.mode.startswith("I"):
        # 16-bit greys. Pillow's own conversion would clip them to 255.
        greys = np.asarray(image).astype(np.uint32).clip(0, 65535)
        eights = ((greys + 128) // 257).astype(np.uint8)
        eights[greys == image.info.get("transparency", -1)] = 255
        image = Image.fromarray(eights)
    elif image.has_transparency_data:
        rgba = image.convert("RGBA")
        image = Image.alpha_composite(Image.new("RGBA", image.size, "white"), rgba)
    if mode == "L" and image.mode not in {"1", "L"}:
        image = image.convert("RGB")
    return image.convert(mode)
