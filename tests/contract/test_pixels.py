"""Exporter and server read ImageSpec the same way: a model is served the pixels that it was made with."""

import io

import numpy as np
import pytest
from PIL import Image, UnidentifiedImageError

from weft_export.pixels import read_pixel_values
from weft_proto.v1 import bundle_pb2 as pb
from weft_server.images import load_pixels

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


@pytest.mark.parametrize("mode", PICTURES)
@pytest.mark.parametrize("resample", [pb.RESAMPLE_BILINEAR, pb.RESAMPLE_BICUBIC, pb.RESAMPLE_BOX])
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
    np.testing.assert_array_equal(expected, load_pixels(file.getvalue(), spec, 1 << 20, 1 << 20))


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
    np.testing.assert_array_equal(expected, load_pixels(file.getvalue(), spec, 1 << 20, 1 << 20))


@pytest.mark.parametrize("kind", ["BMP", "GIF", "TIFF"])
def test_what_the_server_does_not_take_makes_no_bundle(kind):
    """A golden picture in another format would be refused only when the bundle is served."""
    file = io.BytesIO()
    PICTURES["RGB"].save(file, kind)
    with pytest.raises(UnidentifiedImageError):
        read_pixel_values(file.getvalue(), pb.ImageSpec(channels=3, height=8, width=8))
