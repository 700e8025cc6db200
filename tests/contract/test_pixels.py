"""Exporter and server read ImageSpec the same way: a model is served the pixels that it was made with."""

import io
import struct
import zlib

import numpy as np
import pytest
from PIL import Image, UnidentifiedImageError

from weft_export.checkpoints.picture import read_pixel_values
from weft_proto.v1 import bundle_pb2 as pb
from weft_server.errors import InvalidRequest
from weft_server.preprocessing.images import load_picture

RANDOM = np.random.default_rng(0)
PICTURES = {
    "RGB": Image.fromarray(RANDOM.integers(0, 256, (24, 32, 3), np.uint8)),
    "RGBA": Image.fromarray(RANDOM.integers(0, 256, (24, 32, 4), np.uint8)),
    "L": Image.fromarray(RANDOM.integers(0, 256, (24, 32), np.uint8)),
    "LA": Image.fromarray(RANDOM.integers(0, 256, (24, 32, 4), np.uint8)).convert("LA"),
    "P": Image.fromarray(RANDOM.integers(0, 256, (24, 32, 3), np.uint8)).quantize(64),
    "1": Image.fromarray(RANDOM.integers(0, 256, (24, 32), np.uint8)).convert("1"),
    "I;16": Image.fromarray(RANDOM.integers(0, 65536, (24, 32), np.uint16)),
}
RESAMPLES = [value for value in pb.Resample.values() if value != pb.RESAMPLE_UNSPECIFIED]
CUTS = [
    {"shortest_edge": 19},
    {"shortest_edge": 40},
    {"resize_height": 21, "resize_width": 18},
    {"resize_height": 17},
    {"resize_width": 30},
]


@pytest.mark.parametrize("mode", PICTURES)
@pytest.mark.parametrize("resample", RESAMPLES)
@pytest.mark.parametrize("size", [(24, 32), (16, 16), (40, 8)])
@pytest.mark.parametrize("channels", [1, 3])
def test_exporter_and_server_make_the_same_pixels(mode, resample, size, channels):
    """For any mode, filter, size and channels: the pixel values agree bit by bit."""
    spec = pb.ImageSpec(channels=channels, height=size[0], width=size[1], resample=resample)
    spec.mean.extend([0.4, 0.5, 0.6][:channels])
    spec.std.extend([0.2, 0.3, 0.25][:channels])
    file = io.BytesIO()
    PICTURES[mode].save(file, "PNG")
    expected = read_pixel_values(file.getvalue(), spec)
    np.testing.assert_array_equal(expected, load_picture(file.getvalue(), spec, 1 << 20, 1 << 20).pixels)


@pytest.mark.parametrize("mode", PICTURES)
@pytest.mark.parametrize("cut", CUTS, ids=str)
@pytest.mark.parametrize("turned", [False, True])
def test_exporter_and_server_cut_the_same_pixels(mode, cut, turned):
    """However a picture is resized and cut, upright or lying: the pixel values agree bit by bit."""
    spec = pb.ImageSpec(channels=3, height=16, width=13, resample=pb.RESAMPLE_BICUBIC, mean=[0] * 3, std=[1] * 3, **cut)
    file = io.BytesIO()
    picture = PICTURES[mode].transpose(Image.Transpose.ROTATE_90) if turned else PICTURES[mode]
    picture.save(file, "PNG")
    expected = read_pixel_values(file.getvalue(), spec)
    np.testing.assert_array_equal(expected, load_picture(file.getvalue(), spec, 1 << 20, 1 << 20).pixels)


@pytest.mark.parametrize("mode", ["RGB", "L", "CMYK"])
@pytest.mark.parametrize("orientation", [1, 3, 6, 8])
def test_a_photograph_stands_upright_for_both(mode, orientation):
    """A JPEG is turned as its EXIF data say, by the exporter's golden request and by the server."""
    spec = pb.ImageSpec(channels=3, height=8, width=12, resample=pb.RESAMPLE_BILINEAR, mean=[0, 0, 0], std=[1, 1, 1])
    exif = Image.Exif()
    exif[0x0112] = orientation
    file = io.BytesIO()
    PICTURES["RGB"].convert(mode).save(file, "JPEG", exif=exif)
    expected = read_pixel_values(file.getvalue(), spec)
    np.testing.assert_array_equal(expected, load_picture(file.getvalue(), spec, 1 << 20, 1 << 20).pixels)


def _png(depth, colour, row, *chunks):
    """A PNG of one row of two pixels, with chunks before its data."""
    header = (b"IHDR", struct.pack(">IIBBBBB", 2, 1, depth, colour, 0, 0, 0))
    file = b"\x89PNG\r\n\x1a\n"
    for kind, data in (header, *chunks, (b"IDAT", zlib.compress(b"\0" + row)), (b"IEND", b"")):
        file += struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))
    return file


SPEC = pb.ImageSpec(channels=1, height=1, width=2, resample=pb.RESAMPLE_BOX, mean=[0], std=[1])
TRANSPARENT = {  # depth, kind of colours, two pixels, and the first of them as a transparent colour
    "1 bit": (1, 0, b"\x40", b"\0\0"),
    "2 bits": (2, 0, b"\x60", b"\0\1"),
    "4 bits": (4, 0, b"\x39", b"\0\3"),
    "8 bits": (8, 0, b"\x33\x66", b"\0\x33"),
    "16 bits": (16, 0, b"\x33\x33\x33\x34", b"\x33\x33"),
    "colours": (8, 2, bytes(range(6)), b"\0\0\0\1\0\2"),
    "colours of 16 bits": (16, 2, bytes(range(12)), bytes(range(6))),
}


@pytest.mark.parametrize(("depth", "colour", "row", "first"), TRANSPARENT.values(), ids=TRANSPARENT)
def test_a_transparent_colour_is_white_for_both(depth, colour, row, first):
    """The pixel of that colour turns white, whatever the depth, and the other stays as it is."""
    data = _png(depth, colour, row, (b"tRNS", first))
    both = (data, _png(depth, colour, row))
    with_it, without = (load_picture(each, SPEC, 1 << 20, 1 << 20).pixels.ravel() for each in both)
    assert [1.0, without[1]] == with_it.tolist()
    assert without[0] < 1
    np.testing.assert_array_equal(read_pixel_values(data, SPEC).ravel(), with_it)


def test_an_animation_begins_with_its_first_frame_for_both():
    """Not with the picture that stands before it for others."""
    file = io.BytesIO()
    frames = [Image.new("L", (2, 1), grey) for grey in (10, 20, 30)]
    frames[0].save(file, "PNG", save_all=True, append_images=frames[1:], default_image=True)
    assert [20, 20] == (read_pixel_values(file.getvalue(), SPEC) * 255).round().ravel().tolist()
    np.testing.assert_array_equal(
        read_pixel_values(file.getvalue(), SPEC), load_picture(file.getvalue(), SPEC, 1 << 20, 1 << 20).pixels
    )


def test_neither_takes_colours_by_number_without_a_palette():
    """They would be black."""
    data = _png(8, 3, b"\0\1")
    with pytest.raises(ValueError, match="palette"):
        read_pixel_values(data, SPEC)
    with pytest.raises(InvalidRequest, match="corrupt"):
        load_picture(data, SPEC, 1 << 20, 1 << 20)


@pytest.mark.parametrize("kind", ["BMP", "GIF", "TIFF"])
def test_what_the_server_does_not_take_makes_no_bundle(kind):
    """A golden picture in another format would be refused only when the bundle is served."""
    file = io.BytesIO()
    PICTURES["RGB"].save(file, kind)
    with pytest.raises(UnidentifiedImageError):
        read_pixel_values(file.getvalue(), pb.ImageSpec(channels=3, height=8, width=8))
