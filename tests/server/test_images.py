"""Any sound PNG, JPEG or WebP becomes pixel values; anything else is a typed error, before it costs memory."""

import io
import struct
import tracemalloc
import zlib

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image

from weft_proto.v1 import bundle_pb2 as pb
from weft_server.errors import InvalidRequest
from weft_server.images import load_pixels

MAX_BYTES, MAX_PIXELS = 1 << 20, 1 << 20


def _spec(channels=3, size=(4, 6), mean=0.0, std=1.0, resample=pb.RESAMPLE_BOX) -> pb.ImageSpec:
    mean, std = [mean] * channels, [std] * channels
    return pb.ImageSpec(channels=channels, height=size[0], width=size[1], resample=resample, mean=mean, std=std)


def _encode(image: Image.Image, kind="PNG", **options) -> bytes:
    file = io.BytesIO()
    image.save(file, kind, **options)
    return file.getvalue()


def _load(data: bytes, spec: pb.ImageSpec | None = None) -> np.ndarray:
    return load_pixels(data, spec or _spec(), MAX_BYTES, MAX_PIXELS)


def _refusal(data: bytes, **limits: int) -> InvalidRequest:
    with pytest.raises(InvalidRequest) as error:
        load_pixels(data, _spec(), limits.get("max_bytes", MAX_BYTES), limits.get("max_pixels", MAX_PIXELS))
    assert error.value.field == "image.data"
    return error.value


def _chunk(kind: bytes, data: bytes) -> bytes:
    return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))


def _png_header(width: int, height: int) -> bytes:
    """A PNG of a few bytes that promises width x height pixels."""
    header = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    return b"\x89PNG\r\n\x1a\n" + _chunk(b"IHDR", header) + _chunk(b"IDAT", zlib.compress(b"")) + _chunk(b"IEND", b"")


NOISE = np.random.default_rng(0).integers(0, 256, (8, 12, 3), np.uint8)


@pytest.mark.parametrize("resample", [pb.RESAMPLE_BILINEAR, pb.RESAMPLE_BICUBIC, pb.RESAMPLE_BOX])
def test_pixels_are_resized_scaled_and_normalised(resample):
    """Pixel values are (resized / 255 - mean) / std, float32 [C, H, W], contiguous, without regard to aspect."""
    pixels = _load(_encode(Image.fromarray(NOISE)), _spec(size=(5, 3), mean=0.25, std=0.5, resample=resample))
    kinds = {pb.RESAMPLE_BILINEAR: 2, pb.RESAMPLE_BICUBIC: 3, pb.RESAMPLE_BOX: 4}
    resized = np.asarray(Image.fromarray(NOISE).resize((3, 5), Image.Resampling(kinds[resample])), np.float64)
    assert (pixels.shape, pixels.dtype, pixels.flags.c_contiguous) == ((3, 5, 3), np.float32, True)
    np.testing.assert_allclose(((resized / 255 - 0.25) / 0.5).transpose(2, 0, 1), pixels, atol=1e-6)


def test_mean_and_std_are_by_channel():
    """Each channel has its own mean and std."""
    spec = _spec(size=(1, 1))
    spec.mean[:], spec.std[:] = [0.0, 0.5, 1.0], [1.0, 0.5, 0.25]
    pixels = _load(_encode(Image.new("RGB", (1, 1), (255, 255, 0))), spec)
    assert [1.0, 1.0, -4.0] == pixels.ravel().tolist()


GREY = Image.new("L", (3, 3), 51)
RED = (255, 0, 0)
PICTURES = {
    "1 x 1": (_encode(Image.new("RGB", (1, 1), RED)), [1, 0, 0]),
    "one bit": (_encode(Image.new("1", (3, 3), 1)), [1, 1, 1]),
    "grey": (_encode(GREY), [0.2, 0.2, 0.2]),
    "grey of 16 bits": (_encode(Image.fromarray(np.full((3, 3), 51 * 257, np.uint16))), [0.2, 0.2, 0.2]),
    "palette": (_encode(Image.new("RGB", (3, 3), RED).quantize(4)), [1, 0, 0]),
    "palette with a transparent colour": (
        _encode(Image.new("RGB", (3, 3), RED).quantize(4), transparency=0),
        [1, 1, 1],
    ),
    "palette with an alpha for each colour": (
        _encode(Image.new("RGB", (3, 3), RED).quantize(4), transparency=bytes([0] * 256)),
        [1, 1, 1],
    ),
    "transparent": (_encode(Image.new("RGBA", (3, 3), (255, 0, 0, 0))), [1, 1, 1]),
    "half transparent": (_encode(Image.new("RGBA", (3, 3), (255, 0, 0, 51))), [1, 0.8, 0.8]),
    "grey with alpha": (_encode(Image.new("LA", (3, 3), (0, 51))), [0.8, 0.8, 0.8]),
    "JPEG": (_encode(Image.new("RGB", (16, 16), (51, 51, 51)), "JPEG"), [0.2, 0.2, 0.2]),
    "CMYK JPEG": (_encode(Image.new("CMYK", (16, 16), (0, 0, 0, 204)), "JPEG"), [0.2, 0.2, 0.2]),
    "progressive JPEG": (_encode(Image.new("L", (16, 16), 51), "JPEG", progressive=True), [0.2, 0.2, 0.2]),
    "WebP": (_encode(Image.new("RGB", (3, 3), RED), "WEBP", lossless=True), [1, 0, 0]),
    "transparent WebP": (_encode(Image.new("RGBA", (3, 3), (255, 0, 0, 0)), "WEBP", lossless=True), [1, 1, 1]),
}
FRAMES = {"save_all": True, "append_images": [Image.new("RGB", (3, 3), (0, 0, 255))], "duration": 10}
PICTURES["animated WebP"] = (_encode(Image.new("RGB", (3, 3), RED), "WEBP", lossless=True, **FRAMES), [1, 0, 0])
PICTURES["animated PNG"] = (_encode(Image.new("RGB", (3, 3), RED), "PNG", **FRAMES), [1, 0, 0])


@pytest.mark.parametrize(("data", "colour"), PICTURES.values(), ids=PICTURES)
def test_every_kind_of_picture_loads(data, colour):
    """Whatever its mode, depth or format, a picture becomes its colours, transparency white, an animation its start."""
    np.testing.assert_allclose(_load(data).mean(axis=(1, 2)), colour, atol=0.01)
    luminance = _load(data, _spec(channels=1))
    assert luminance.shape == (1, 4, 6)
    np.testing.assert_allclose(luminance.mean(), np.dot(colour, [0.299, 0.587, 0.114]), atol=0.01)


def test_orientation_is_as_a_viewer_shows_it():
    """EXIF orientation is applied; metadata that cannot be read is ignored."""
    image = Image.fromarray(np.array([[255, 0], [0, 0]], np.uint8))
    exif = Image.Exif()
    exif[0x0112] = 6  # stands on its side: turn it clockwise
    spec = _spec(channels=1, size=(2, 2))
    assert [[[0, 1], [0, 0]]] == _load(_encode(image, exif=exif), spec).tolist()
    assert [[[1, 0], [0, 0]]] == _load(_encode(image, exif=b"Exif\0\0nonsense"), spec).tolist()


def test_a_picture_that_promises_too_much_is_refused_by_its_header():
    """A file of a few bytes whose header says 30,000 x 30,000 pixels is refused without the memory it asks for."""
    data = _png_header(30_000, 30_000)
    assert len(data) < 100
    tracemalloc.start()
    error = _refusal(data, max_pixels=16_777_216)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert (error.reason, peak < 1 << 20) == ("IMAGE_TOO_LARGE", True)
    assert "30000 x 30000" in error.message


@pytest.mark.parametrize("kind", ["PNG", "JPEG", "WEBP"])
def test_the_pixel_limit_is_exact(kind):
    """As many pixels as the limit are taken in any format, one more is not."""
    data = _encode(Image.new("RGB", (10, 10)), kind)
    assert load_pixels(data, _spec(), MAX_BYTES, 100).shape == (3, 4, 6)
    assert _refusal(data, max_pixels=99).reason == "IMAGE_TOO_LARGE"


def test_too_many_bytes_are_refused_unread():
    """A file over the limit of bytes is refused whatever is in it."""
    assert _refusal(bytes(101), max_bytes=100).reason == "IMAGE_TOO_LARGE"


NOT_PICTURES = {
    "text": b"hello",
    "zeroes": bytes(100),
    "GIF": _encode(GREY, "GIF"),
    "BMP": _encode(GREY, "BMP"),
    "TIFF": _encode(GREY, "TIFF"),
    "EPS": b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 9 9\n",
    "SVG": b"<svg xmlns='http://www.w3.org/2000/svg'/>",
    "no pixels": _png_header(0, 5),
    "no data": _png_header(5, 5),
    "only a signature": b"\x89PNG\r\n\x1a\n",
}


@pytest.mark.parametrize("data", NOT_PICTURES.values(), ids=NOT_PICTURES)
def test_what_is_no_picture_of_ours_is_refused(data):
    """Other formats, garbage and headers without pixels are a bad image."""
    assert _refusal(data).reason == "BAD_IMAGE"


def test_empty_is_empty_input():
    """No bytes at all are an empty input."""
    assert _refusal(b"").reason == "EMPTY_INPUT"


@pytest.mark.parametrize("kind", ["PNG", "JPEG", "WEBP"])
@pytest.mark.parametrize("share", [0.1, 0.5, 0.9])
def test_a_truncated_picture_is_refused(kind, share):
    """A file cut anywhere is a bad image, never a half-grey picture."""
    data = _encode(Image.fromarray(np.tile(NOISE, (8, 8, 1))), kind)
    assert _refusal(data[: int(len(data) * share)]).reason == "BAD_IMAGE"


@settings(max_examples=300, deadline=None)
@given(st.sampled_from(["PNG", "JPEG", "WEBP"]), st.integers(0, 400), st.binary(min_size=1, max_size=8))
def test_corruption_is_a_typed_error_or_a_picture(kind, at, garbage):
    """Whatever bytes are overwritten: pixel values or InvalidRequest, and never anything else of Pillow's."""
    data = bytearray(_encode(Image.fromarray(NOISE), kind))
    data[at : at + len(garbage)] = garbage
    assert _outcome(bytes(data)) in {(3, 4, 6), "BAD_IMAGE", "IMAGE_TOO_LARGE"}


def _outcome(data: bytes) -> object:
    try:
        return _load(data).shape
    except InvalidRequest as error:
        return error.reason


def test_a_jpeg_that_is_scanned_over_and_over_is_refused():
    """A progressive JPEG costs what its scans cost: one that repeats a tiny scan a thousand times is never decoded."""
    file = io.BytesIO()
    Image.new("RGB", (256, 256), (120, 130, 140)).save(file, "JPEG", progressive=True)
    data = file.getvalue()
    start = data.rindex(b"\xff\xda")
    scan = data[start:-2]
    spec = _spec(size=(8, 8))

    assert load_pixels(data, spec, 1 << 23, 1 << 24).shape == (3, 8, 8)
    with pytest.raises(InvalidRequest, match="scans"):
        load_pixels(data[:-2] + scan * 1000 + data[-2:], spec, 1 << 23, 1 << 24)


def test_a_jpeg_that_says_it_holds_more_pictures_is_counted_too():
    """Pillow takes it for another format, and would decode all scans of its first picture."""
    file, picture = io.BytesIO(), Image.new("RGB", (256, 256), (120, 130, 140))
    picture.save(file, "MPO", save_all=True, append_images=[picture], progressive=True)
    data = file.getvalue()
    end = data.index(b"\xff\xd9")
    scan = data[data.rindex(b"\xff\xda", 0, end) : end]
    spec = _spec(size=(8, 8))

    assert "MPO" == Image.open(io.BytesIO(data), formats=["JPEG"]).format
    assert load_pixels(data, spec, 1 << 23, 1 << 24).shape == (3, 8, 8)
    with pytest.raises(InvalidRequest, match="scans"):
        load_pixels(data[:end] + scan * 1000 + data[end:], spec, 1 << 23, 1 << 24)
