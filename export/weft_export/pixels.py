"""How a picture becomes pixel_values, as weft.v1.ImageSpec says; the server does the same from the same words."""

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from weft_proto.v1 import bundle_pb2

_RESAMPLE = {
    bundle_pb2.RESAMPLE_BILINEAR: Image.Resampling.BILINEAR,
    bundle_pb2.RESAMPLE_BICUBIC: Image.Resampling.BICUBIC,
    bundle_pb2.RESAMPLE_BOX: Image.Resampling.BOX,
}


def to_pixel_values(image: Image.Image, spec: bundle_pb2.ImageSpec) -> NDArray[np.float32]:
    """Return pixel_values float32 [channels, height, width]: flattened, resized and scaled."""
    if image.has_transparency_data:
        rgba = image.convert("RGBA")
        image = Image.alpha_composite(Image.new("RGBA", rgba.size, "white"), rgba)
    image = image.convert("L" if spec.channels == 1 else "RGB")
    if image.size != (spec.width, spec.height):
        image = image.resize((spec.width, spec.height), _RESAMPLE[spec.resample])
    values = np.asarray(image, dtype=np.float32).reshape(spec.height, spec.width, spec.channels) / np.float32(255)
    mean, std = np.array(spec.mean, dtype=np.float32), np.array(spec.std, dtype=np.float32)
    return np.ascontiguousarray(((values - mean) / std).transpose(2, 0, 1))
