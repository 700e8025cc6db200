"""How pictures become pixels, as a command line says it: by options, or by a preprocessor_config.json."""

import re
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

from weft_export.converters.image_processor import read_image_spec
from weft_export.converters.text.json_file import read_object
from weft_export.errors import ExportError
from weft_proto.bundle_rules import MAX_IMAGE_SIDE
from weft_proto.resizing import resizing_fault
from weft_proto.v1 import bundle_pb2

_WHITE = 255


class Resampling(StrEnum):
    """How pictures are resized."""

    NEAREST = "nearest"
    BILINEAR = "bilinear"
    BICUBIC = "bicubic"
    BOX = "box"
    HAMMING = "hamming"
    LANCZOS = "lanczos"


@dataclass(frozen=True)
class PictureOptions:
    """What a command line says of pictures; the help of `weft wrap` says what each is."""

    processor: Path | None = None
    image_size: str | None = None
    mean: str | None = None
    std: str | None = None
    resample: Resampling | None = None
    rescale_factor: float | None = None
    resize: str | None = None
    shortest_edge: int | None = None
    pad: str | None = None

    def spec(self) -> bundle_pb2.ImageSpec:
        """Return what a bundle says of them.

        Raises:
            ExportError: an option is missing, is no number, or contradicts another.
        """
        given = {
            f"--{name.replace('_', '-')}": getattr(self, name) for name in _SAID if getattr(self, name) is not None
        }
        if self.processor is not None:
            if given:
                raise ExportError(f"--processor says what {', '.join(given)} say: leave those out")
            spec = _processed(self.processor)
        else:
            spec = self._stated(given)
        spec.grid_rows = spec.grid_columns = 1  # nothing of it is explained
        return spec

    def _stated(self, given: dict[str, object]) -> bundle_pb2.ImageSpec:
        missing = [name for name in _NEEDED if not given.get(name)]
        if missing:
            raise ExportError(f"{' and '.join(missing)}: a model of pictures needs it, or --processor")
        assert self.image_size
        assert self.mean
        assert self.std
        assert self.resample
        height, width = _size("--image-size", self.image_size)
        means, stds = _floats("--mean", self.mean), _floats("--std", self.std)
        if len(means) != len(stds) or len(means) not in (1, 3):
            raise ExportError("--mean and --std need a number for each channel: 1 for greys, 3 for colours")
        # An ImageSpec speaks of values from 0 to 1.
        unit = 255 * (1 / 255 if self.rescale_factor is None else self.rescale_factor)
        spec = bundle_pb2.ImageSpec(
            channels=len(means),
            height=height,
            width=width,
            resample=bundle_pb2.Resample.Value(f"RESAMPLE_{self.resample.name}"),
            mean=[mean / unit for mean in means],
            std=[std / unit for std in stds],
            shortest_edge=self.shortest_edge or 0,
        )
        if self.resize is not None:
            spec.resize_height, spec.resize_width = _size("--resize", self.resize)
        if self.pad is not None:
            spec.padding.extend(_colour(self.pad, len(means)))
        fault = resizing_fault(spec)
        if fault is not None:
            raise ExportError(fault.replace("image.", "--").replace("_", "-"))
        return spec


_NEEDED = ("--image-size", "--mean", "--std", "--resample")
_SAID = ("image_size", "mean", "std", "resample", "rescale_factor", "resize", "shortest_edge", "pad")


def _processed(path: Path) -> bundle_pb2.ImageSpec:
    fields = read_object(path)
    mean = fields.get("image_mean")
    return read_image_spec(fields, "", len(mean) if isinstance(mean, list) else 3)


def _size(option: str, size: str) -> tuple[int, int]:
    found = re.fullmatch(r"(\d{1,6})(?:x(\d{1,6}))?", size)
    if found is None:
        raise ExportError(f"{option} {size}: it must be a number of pixels, or HEIGHTxWIDTH")
    sides = int(found[1]), int(found[2] or found[1])
    if not all(1 <= side <= MAX_IMAGE_SIDE for side in sides):
        raise ExportError(f"{option} {size}: a side must have 1 to {MAX_IMAGE_SIDE} pixels")
    return sides


def _floats(option: str, values: str) -> list[float]:
    try:
        return [float(value) for value in values.split(",")]
    except ValueError as error:
        raise ExportError(f"{option} {values}: it must be numbers with commas between") from error


def _colour(values: str, channels: int) -> list[int]:
    colour = _floats("--pad", values)
    if len(colour) != channels or not all(value.is_integer() and 0 <= value <= _WHITE for value in colour):
        raise ExportError(f"--pad {values}: it must be {channels} numbers from 0 to 255, with commas between")
    return [int(value) for value in colour]
