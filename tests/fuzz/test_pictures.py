"""Whatever the bytes of a picture are, it becomes pixels or is refused as `image.data`."""

import io

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image

from bounded import Bounded
from mutations import budget, mutated_bytes
from weft_proto.v1 import bundle_pb2
from weft_server.errors import InvalidRequest
from weft_server.preprocessing.images import load_picture

SIZE = 8
SPECS = [
    bundle_pb2.ImageSpec(
        height=SIZE, width=SIZE, channels=channels, resample=resample, mean=[0.5] * channels, std=[0.5] * channels
    )
    for channels in (1, 3)
    for resample in (bundle_pb2.RESAMPLE_BILINEAR, bundle_pb2.RESAMPLE_BICUBIC)
]


def saved(mode, kind, **options):
    """A picture as a file."""
    rng = np.random.default_rng(0)
    image = Image.fromarray(rng.integers(0, 255, (24, 20, 3), np.uint8)).convert(mode)
    file = io.BytesIO()
    image.save(file, kind, **options)
    return file.getvalue()


EXIF = Image.Exif()
EXIF[274] = 6
FILES = [
    *(saved(mode, "PNG") for mode in ("1", "L", "P", "RGB", "RGBA", "I;16")),
    saved("RGB", "PNG", exif=EXIF),
    saved("RGB", "PNG", save_all=True, append_images=[Image.new("RGB", (20, 24))]),
    *(saved(mode, "JPEG") for mode in ("L", "RGB", "CMYK")),
    saved("RGB", "JPEG", progressive=True, exif=EXIF),
    saved("RGB", "MPO", save_all=True, append_images=[Image.new("RGB", (20, 24))]),
    saved("RGB", "WEBP"),
    saved("RGBA", "WEBP", lossless=True, exif=EXIF),
    saved("RGB", "WEBP", save_all=True, append_images=[Image.new("RGB", (20, 24))]),
]


def read(data, index):
    """The shape of a picture's pixels, or the field of the refusal."""
    try:
        pixels = load_picture(data, SPECS[index], 8 << 20, 1 << 24).pixels
    except InvalidRequest as error:
        return error.field
    assert np.isfinite(pixels).all()
    return pixels.shape


@pytest.fixture(scope="module")
def reading():
    """`read` in a process of its own."""
    with Bounded(__file__, "read") as call:
        yield call


@budget(300)
@given(data=st.one_of(mutated_bytes(FILES), st.binary(max_size=200)), index=st.integers(0, len(SPECS) - 1))
def test_any_bytes(reading, data, index):
    """Files of each kind that is taken, changed, and bytes that are none."""
    assert reading(data, index) in {"image.data", (SPECS[index].channels, SIZE, SIZE)}
