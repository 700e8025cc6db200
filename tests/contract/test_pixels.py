"""Exporter and server read ImageSpec the same way: a model is served the pixels that it was made with."""

import io

import numpy as np
import pytest
from PIL import Image

from weft_export.pixels import to_pixel_values
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
    expected = to_pixel_values(Image.open(io.BytesIO(file.getvalue())), spec)
    np.testing.assert_array_equal(expected, load_pixels(file.getvalue(), spec, 1 << 20, 1 << 20))
