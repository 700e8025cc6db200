"""preprocessor_config.json of a Hugging Face directory as an ImageSpec.

For example, {"image_processor_type": "CLIPImageProcessor", "size": {"shortest_edge": 224}, "crop_size": 224} makes the
shorter side 224 pixels long and cuts the 224 x 224 in the middle. What is not stated, the class says.

Two things are done for every picture, whatever the file says. It is turned as its EXIF data say, and made RGB over
white. transformers never turns a picture. It makes RGB only if do_convert_rgb is true, and otherwise fails at a picture
that is not RGB.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from weft_export.converters.keys import NEUTRAL, USED, Only, Table, among, is_set
from weft_export.converters.processor_keys import FILE, IMAGE_KEYS
from weft_export.errors import CheckpointError
from weft_proto.bundle_rules import LIMITS, MAX_IMAGE_SIDE
from weft_proto.resizing import resizing_fault
from weft_proto.v1 import bundle_pb2

# By Pillow's numbers, which is what the file has.
_RESAMPLES = {
    0: bundle_pb2.RESAMPLE_NEAREST,
    1: bundle_pb2.RESAMPLE_LANCZOS,
    2: bundle_pb2.RESAMPLE_BILINEAR,
    3: bundle_pb2.RESAMPLE_BICUBIC,
    4: bundle_pb2.RESAMPLE_BOX,
    5: bundle_pb2.RESAMPLE_HAMMING,
}
_HALVES = [0.5, 0.5, 0.5]
_CLIP_MEAN = [0.48145466, 0.4578275, 0.40821073]
_CLIP_STD = [0.26862954, 0.26130258, 0.27577711]
# From this size on, ConvNeXt's processor cuts nothing off.
_CONVNEXT_WHOLE = 384


@dataclass(frozen=True)
class _Kind:
    """What a class of processors does unless the file says otherwise. `square`: a file's number is height and width."""

    resample: int
    size: dict[str, int]
    square: bool = True
    crop_size: Any = None
    crops: bool = False
    mean: Any = None
    std: Any = None
    # What it makes tiles of a picture by: as TilingSpec. Grids are read elsewhere.
    tiles: str = ""


def _square(side: int) -> dict[str, int]:
    return {"height": side, "width": side}


_VIT = _Kind(2, _square(224))
_DEIT = _Kind(3, _square(256), crop_size=224, crops=True)
_BEIT = _Kind(3, _square(224), crop_size=224)
_CONVNEXT = _Kind(3, {"shortest_edge": 384}, square=False)
_CLIP = _Kind(3, {"shortest_edge": 224}, square=False, crop_size=224, crops=True, mean=_CLIP_MEAN, std=_CLIP_STD)
_GEMMA3 = _Kind(2, _square(224), square=True)
_SIGLIP = _Kind(3, _square(224), square=False)
# A page: see ImageSpec.padding.
_DONUT = _Kind(2, {"height": 2560, "width": 1920}, square=False)
_BLIP = _Kind(3, _square(384), mean=_CLIP_MEAN, std=_CLIP_STD)
_ONEVISION = _Kind(3, _square(384), square=False, mean=_CLIP_MEAN, std=_CLIP_STD, tiles="grids")
_IDEFICS3 = _Kind(1, {"longest_edge": 4 * 364}, square=False, tiles="longest_edge")
# Sides of these are numbers of pixels of the whole.
_QWEN = _Kind(
    3,
    {"shortest_edge": 56 * 56, "longest_edge": 1280 * 28 * 28},
    square=False,
    mean=_CLIP_MEAN,
    std=_CLIP_STD,
    tiles="max_pixels",
)
KINDS = {
    "ViT": _VIT,
    "DeiT": _DEIT,
    "Donut": _DONUT,
    "Beit": _BEIT,
    "ConvNext": _CONVNEXT,
    "Gemma3": _GEMMA3,
    "CLIP": _CLIP,
    "Bit": _CLIP,
    "Blip": _BLIP,
    "Idefics3": _IDEFICS3,
    "SmolVLM": _IDEFICS3,
    "Llava": _CLIP,
    "LlavaOnevision": _ONEVISION,
    "Qwen2VL": _QWEN,
    "Siglip": _SIGLIP,
}
"""Each class, by the beginning of its name."""
_ENDINGS = ("ImageProcessorPil", "ImageProcessorFast", "ImageProcessor", "FeatureExtractor")
KIND_OF_MODEL = {
    "beit": _BEIT,
    "blip": _BLIP,
    "blip-2": _BLIP,
    "clip": _CLIP,
    "clip_vision_model": _CLIP,
    "convnext": _CONVNEXT,
    "convnextv2": _CONVNEXT,
    "deit": _DEIT,
    "dinov2": _CLIP,
    "idefics3": _IDEFICS3,
    "smolvlm": _IDEFICS3,
    "florence2": _CLIP,
    "gemma3": _GEMMA3,
    "git": _CLIP,
    "paligemma": _SIGLIP,
    "llava": _CLIP,
    "llava_onevision": _ONEVISION,
    "qwen2_5_vl": _QWEN,
    "qwen2_vl": _QWEN,
    "qwen3_vl": _QWEN,
    "qwen3_vl_moe": _QWEN,
    "resnet": _CONVNEXT,
    "siglip": _SIGLIP,
    "siglip_vision_model": _SIGLIP,
    "swin": _VIT,
    "swinv2": _VIT,
    "vit": _VIT,
}
"""Where a file names no class, the model says which it is."""

# Of classes that make tiles: `sight` reads the grids. Those of a batch are filled up to equally many.
_OF_PAGES: Table = {
    "do_thumbnail": Only((True,)),
    "do_align_long_axis": Only((False,)),
    "do_pad": Only((True,)),
}
_OF_TILES: Mapping[str, Table] = {
    "": {},
    "grids": {"image_grid_pinpoints": USED, "do_pad": NEUTRAL},
    "longest_edge": {
        "do_image_splitting": USED,
        "max_image_size": USED,
        "return_row_col_info": NEUTRAL,
        "do_pad": NEUTRAL,
    },
    "max_pixels": {
        "max_pixels": USED,
        "merge_size": USED,
        "min_pixels": USED,
        "patch_size": USED,
        # A picture is two equal frames, whose two products are added up beside the weights.
        "temporal_patch_size": Only((2,)),
    },
}
# A key that no table has may change pixels, unless it says no.
_UNKNOWN = Only((False,))


def read_image_spec(given: object, model_type: str, channels: int, *, place: str = FILE) -> bundle_pb2.ImageSpec:
    """Return what the file's object says, for a model of so many channels. The grid is not set: the model knows it.

    place: how an error names the file.

    Raises:
        CheckpointError: a field is missing, wrong, or asks for what no ImageSpec can say. It is named.
    """
    if not isinstance(given, dict):
        raise CheckpointError(f"{place}: it is no object")
    try:
        return _spec_of(given, model_type, channels)
    except CheckpointError as error:
        raise CheckpointError(f"{place}: {error}") from error


def _spec_of(fields: dict[str, Any], model_type: str, channels: int) -> bundle_pb2.ImageSpec:
    kind = _kind(fields, model_type)
    if kind.tiles and not isinstance(fields.get("image_mean", []), list):
        raise CheckpointError("image_mean must have a number for each channel, for a class that makes tiles")
    wanted = KIND_OF_MODEL.get(model_type)
    if kind.tiles != (wanted.tiles if wanted else ""):
        raise CheckpointError(f"image_processor_type is {fields.get('image_processor_type')!r:.80}, for another model")
    _refuse_others(fields, _OF_PAGES if kind is _DONUT else _OF_TILES[kind.tiles])
    spec = bundle_pb2.ImageSpec(channels=channels, resample=_resample(fields, kind))
    if kind is _CONVNEXT:
        _resize_convnext(spec, fields)
    elif kind is _DONUT:
        _fit_page(spec, fields)
    elif kind.tiles == "longest_edge":
        _split(spec, fields, kind)
    elif kind.tiles == "max_pixels":
        _fit(spec, fields, kind)
    else:
        _resize(spec, fields, kind)
    fault = resizing_fault(spec)
    if fault is not None:
        raise CheckpointError(f"size and crop_size do not fit: {fault}")
    normalises = _flag(fields, "do_normalize", default=True)
    means, stds = kind.mean or _HALVES[:channels], kind.std or _HALVES[:channels]
    spec.mean.extend(_numbers(fields, "image_mean", means, channels) if normalises else [0] * channels)
    spec.std.extend(_numbers(fields, "image_std", stds, channels) if normalises else [1] * channels)
    return spec


def _kind(fields: dict[str, Any], model_type: str) -> _Kind:
    stated = fields.get("image_processor_type") or fields.get("feature_extractor_type")
    if stated is None:
        if model_type not in KIND_OF_MODEL:
            raise CheckpointError(f"it names no image_processor_type, and {model_type!r} has none that Weft knows")
        return KIND_OF_MODEL[model_type]
    for ending in _ENDINGS:
        stem = str(stated).removesuffix(ending)
        if stem in KINDS and stem != stated:
            return KINDS[stem]
    known = ", ".join(f"{stem}ImageProcessor" for stem in KINDS)
    raise CheckpointError(f"image_processor_type {stated!r:.80} is none of {known}")


def _refuse_others(fields: dict[str, Any], more: Table) -> None:
    for name, value in fields.items():
        row = {**IMAGE_KEYS, **more}.get(name, _UNKNOWN)
        if isinstance(row, Only) and is_set(value) and not among(value, row.values):
            raise CheckpointError(f"{name} is {value!r:.80}, which Weft cannot do")
    if not _flag(fields, "do_resize", default=True):
        raise CheckpointError("do_resize is false: the model takes pictures of one size")
    if not _flag(fields, "do_rescale", default=True):
        raise CheckpointError("do_rescale is false: Weft divides by 255")
    factor = fields.get("rescale_factor", 1 / 255)
    if not _is_number(factor) or not math.isclose(factor, 1 / 255, rel_tol=1e-6):
        raise CheckpointError(f"rescale_factor is {factor!r:.80}, not 1/255")


def _resample(fields: dict[str, Any], kind: _Kind) -> bundle_pb2.Resample.ValueType:
    number = fields.get("resample", kind.resample)
    if isinstance(number, bool) or not isinstance(number, int) or number not in _RESAMPLES:
        raise CheckpointError(f"resample is {number!r:.80}, not one of Pillow's 0 to 5")
    return _RESAMPLES[number]


def _resize(spec: bundle_pb2.ImageSpec, fields: dict[str, Any], kind: _Kind) -> None:
    square = _flag(fields, "default_to_square", default=kind.square)
    resized = _sides("size", fields.get("size", kind.size), square=square)
    cut = resized
    if _flag(fields, "do_center_crop", default=kind.crops):
        if "crop_size" not in fields and kind.crop_size is None:
            raise CheckpointError("do_center_crop is true, and crop_size is missing")
        cut = _sides("crop_size", fields.get("crop_size", kind.crop_size), square=True)
    if len(cut) == 1:
        raise CheckpointError(
            "size.shortest_edge without do_center_crop gives pictures of any shape; the model takes one"
        )
    spec.height, spec.width = cut
    if len(resized) == 1:
        (spec.shortest_edge,) = resized
    elif resized != cut:
        spec.resize_height, spec.resize_width = resized


def _split(spec: bundle_pb2.ImageSpec, fields: dict[str, Any], kind: _Kind) -> None:
    """See TilingSpec. Texts around tiles are those of Idefics3Processor."""
    spec.tiling.longest_edge = _longest("size", fields.get("size", kind.size))
    spec.height = spec.width = _longest("max_image_size", fields.get("max_image_size", {"longest_edge": 364}))
    spec.tiling.before_whole = "<fake_token_around_image><global-img>"
    spec.tiling.behind_whole = "<fake_token_around_image>"
    if _flag(fields, "do_image_splitting", default=True):
        spec.tiling.before_tile = "<fake_token_around_image><row_{row}_col_{column}>"
        spec.tiling.behind_row = spec.tiling.behind_tiles = "\n"


def _fit(spec: bundle_pb2.ImageSpec, fields: dict[str, Any], kind: _Kind) -> None:
    """See TilingSpec. max_pixels and min_pixels beside `size` are what it says, whatever is in it."""
    size = fields.get("size") or kind.size
    if not isinstance(size, dict):
        raise CheckpointError(f"size is {size!r:.80}, and not shortest_edge and longest_edge")
    for name, edge in (("min_pixels", "shortest_edge"), ("max_pixels", "longest_edge")):
        given = fields.get(name)
        given = size.get(edge) if given is None else given
        if type(given) is not int or not 1 <= given < 2**31:
            raise CheckpointError(f"{name} is {given!r:.80}, and no whole number of 1 or more")
        setattr(spec.tiling, name, given)
    sides = [_side(name, fields.get(name, usual)) for name, usual in (("patch_size", 14), ("merge_size", 2))]
    spec.height = spec.width = _side("patch_size times merge_size", sides[0] * sides[1])


def _fit_page(spec: bundle_pb2.ImageSpec, fields: dict[str, Any]) -> None:
    """Its class has the width first in a list. Where it resizes to a nearest pixel, it does so otherwise at last."""
    size = fields.get("size", _DONUT.size)
    sides = _sides("size", size[::-1] if isinstance(size, list | tuple) else size, square=False)
    if len(sides) != 2 or _flag(fields, "do_center_crop", default=False):
        raise CheckpointError("size must be height and width for Donut's processor, and do_center_crop false")
    if spec.resample == bundle_pb2.RESAMPLE_NEAREST:
        raise CheckpointError("resample is 0, which Donut's processor takes for bicubic where it makes a page smaller")
    spec.height, spec.width = sides
    spec.shortest_edge = min(sides)
    spec.padding.extend([0] * spec.channels)


def _longest(name: str, value: Any) -> int:
    if not isinstance(value, dict) or set(value) != {"longest_edge"}:
        raise CheckpointError(f"{name} is {value!r:.80}, and not a longest_edge")
    return _side(f"{name}.longest_edge", value["longest_edge"])


def _resize_convnext(spec: bundle_pb2.ImageSpec, fields: dict[str, Any]) -> None:
    """A small picture is a middle part, crop_pct of the shorter side. A large one is the whole, whatever its aspect."""
    if _flag(fields, "do_center_crop", default=False):
        raise CheckpointError("do_center_crop is true: ConvNeXt's processor has cut by crop_pct before")
    sides = _sides("size", fields.get("size", _CONVNEXT.size), square=False)
    if len(sides) != 1:
        raise CheckpointError("size must be a shortest_edge for ConvNeXt's processor")
    (spec.height,) = (spec.width,) = sides
    if spec.height < _CONVNEXT_WHOLE:
        share = fields.get("crop_pct", 224 / 256)
        if not _is_number(share) or not 0 < share <= 1:
            raise CheckpointError(f"crop_pct is {share!r:.80}, and not more than 0 and at most 1")
        spec.shortest_edge = _side("size.shortest_edge / crop_pct", int(min(spec.height / share, MAX_IMAGE_SIDE + 1)))


def _sides(name: str, value: Any, *, square: bool) -> tuple[int, ...]:
    """Return (height, width), or the shortest edge alone. square: what a number alone is."""
    if isinstance(value, list | tuple) and len(value) == 2:
        return _side(f"{name}[0]", value[0]), _side(f"{name}[1]", value[1])
    if not isinstance(value, dict):
        side = _side(name, value)
        return (side, side) if square else (side,)
    if set(value) == {"height", "width"}:
        return _side(f"{name}.height", value["height"]), _side(f"{name}.width", value["width"])
    if set(value) == {"shortest_edge"} and name == "size":
        return (_side("size.shortest_edge", value["shortest_edge"]),)
    raise CheckpointError(f"{name} has {', '.join(map(str, value)) or 'nothing'}, and not height and width")


def _side(name: str, value: object) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or not 1 <= value <= MAX_IMAGE_SIDE:
        raise CheckpointError(f"{name} must be a whole number from 1 to {MAX_IMAGE_SIDE}, not {value!r:.80}")
    return value


def _flag(fields: dict[str, Any], name: str, *, default: bool) -> bool:
    value = fields.get(name, default)
    if value is None:
        # transformers does not take its class's default then.
        return False
    if not isinstance(value, bool):
        raise CheckpointError(f"{name} must be true or false, not {value!r:.80}")
    return value


def _numbers(fields: dict[str, Any], name: str, default: list[float], channels: int) -> list[float]:
    value = fields.get(name, default)
    values = value if isinstance(value, list | tuple) else [value] * channels
    if len(values) != channels or not all(map(_is_number, values)):
        raise CheckpointError(f"{name} must have a number for each of {channels} channels, not {value!r:.80}")
    limit = LIMITS["ImageSpec"][name.removeprefix("image_")]
    if not limit.minimum <= min(values) <= max(values) <= (limit.maximum or 0):
        raise CheckpointError(f"{name} must be from {limit.minimum:g} to {limit.maximum:g}, not {value!r:.80}")
    return list(values)


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and abs(value) < 1e30
