"""Pictures to pixel_values, as ImageSpec says."""

import io

import numpy as np
import pytest
from PIL import Image
from tiny_parts import picture

from weft_export.checkpoints.picture import to_pixel_values
from weft_proto.v1 import bundle_pb2


def spec(channels=3, height=4, width=6, resample=bundle_pb2.RESAMPLE_BILINEAR):
    """Make an ImageSpec with a different mean and std for each channel."""
    mean, std = [0.1, 0.2, 0.3][:channels], [0.5, 0.25, 2.0][:channels]
    return bundle_pb2.ImageSpec(channels=channels, height=height, width=width, resample=resample, mean=mean, std=std)


def test_values_are_scaled_by_channel():
    """Each value becomes (value / 255 - mean) / std of its channel, channels first."""
    pixels = np.arange(72, dtype=np.uint8).reshape(4, 6, 3)
    actual = to_pixel_values(Image.fromarray(pixels), spec())

    assert np.float32 == actual.dtype
    expected = (pixels / 255 - [0.1, 0.2, 0.3]) / [0.5, 0.25, 2.0]
    np.testing.assert_allclose(actual, expected.transpose(2, 0, 1), atol=1e-6)


@pytest.mark.parametrize("mode", ["RGBA", "LA", "P"])
def test_transparency_is_laid_over_white(mode):
    """A wholly transparent picture is white, whatever colour hides in it."""
    image = Image.new("RGBA", (6, 4), (255, 0, 0, 0)).convert(mode)
    if mode == "P":
        image.info["transparency"] = image.getpixel((0, 0))

    np.testing.assert_allclose(
        to_pixel_values(image, spec()), to_pixel_values(Image.new("RGB", (6, 4), "white"), spec())
    )


def test_grey_is_luminance():
    """One channel is Pillow's luminance of the colours."""
    with Image.open(io.BytesIO(picture(6, 4))) as image:
        luminance = np.asarray(image.convert("L"), np.float32) / 255
        actual = to_pixel_values(image, spec(channels=1))

    assert (1, 4, 6) == actual.shape
    np.testing.assert_allclose(actual[0], (luminance - 0.1) / 0.5, atol=1e-6)


def test_box_resampling_averages():
    """RESAMPLE_BOX makes each pixel the mean of those it covers."""
    pixels = np.kron(np.arange(24, dtype=np.uint8).reshape(4, 6), np.ones((3, 3), np.uint8)) * 10
    actual = to_pixel_values(Image.fromarray(pixels), spec(channels=1, resample=bundle_pb2.RESAMPLE_BOX))

    np.testing.assert_allclose(actual[0], (np.arange(24).reshape(4, 6) * 10 / 255 - 0.1) / 0.5, atol=1e-6)
