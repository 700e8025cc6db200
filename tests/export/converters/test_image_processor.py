"""preprocessor_config.json: the pixels are those of transformers' own processors, or a field is refused by its name."""

import io
from importlib import import_module

import numpy as np
import pytest
from PIL import Image

from weft_export.checkpoints.picture import read_pixel_values
from weft_export.converters.image_processor import read_image_spec
from weft_export.errors import CheckpointError
from weft_proto.resizing import resizing_fault
from weft_proto.v1 import bundle_pb2 as pb

RANDOM = np.random.default_rng(0)
# Width and height.
SIZES = {"odd": (37, 53), "wide": (301, 40), "tall": (31, 222), "square": (64, 64), "tiny": (1, 1), "thin": (1, 30)}
HALVES = {"image_mean": [0.5, 0.5, 0.5], "image_std": [0.5, 0.5, 0.5]}
OLD_VIT = {"feature_extractor_type": "ViTFeatureExtractor", "do_normalize": True, "do_resize": True, **HALVES}
OLD_CONVNEXT = {"feature_extractor_type": "ConvNextFeatureExtractor", "do_resize": True, "do_normalize": True}
PAPER = {"image_mean": [0.485, 0.456, 0.406], "image_std": [0.229, 0.224, 0.225]}
# The class that makes what is expected, as folder and stem; and what the file says, as real ones do.
FILES = {
    "vit": ("vit.ViT", {"image_processor_type": "ViTImageProcessor", "size": {"height": 24, "width": 24}}),
    "vit as it is": ("vit.ViT", {"image_processor_type": "ViTImageProcessor"}),
    "vit of old": ("vit.ViT", OLD_VIT | {"resample": 2, "size": 32}),
    "vit, height and width": ("vit.ViT", {"image_processor_type": "ViTImageProcessorFast", "size": [24, 40]}),
    "swin of old": ("vit.ViT", OLD_VIT | PAPER | {"resample": 3, "size": 24}),
    "deit": ("deit.DeiT", {"image_processor_type": "DeiTImageProcessor"}),
    "deit of old": (
        "deit.DeiT",
        {
            "feature_extractor_type": "DeiTFeatureExtractor",
            "do_center_crop": True,
            "size": 37,
            "crop_size": 32,
            "resample": 3,
            **PAPER,
        },
    ),
    "deit, whole": (
        "deit.DeiT",
        {"image_processor_type": "DeiTImageProcessor", "do_center_crop": False, "size": {"height": 24, "width": 30}},
    ),
    "beit": ("beit.Beit", {"image_processor_type": "BeitImageProcessor", "do_reduce_labels": False, "size": 33}),
    "beit of old": (
        "beit.Beit",
        {"feature_extractor_type": "BeitFeatureExtractor", "do_center_crop": True, "size": 40, "crop_size": 31},
    ),
    "convnext": ("convnext.ConvNext", OLD_CONVNEXT | PAPER | {"crop_pct": 0.875, "resample": 3, "size": 224}),
    "convnext, odd": ("convnext.ConvNext", OLD_CONVNEXT | {"crop_pct": 0.9, "size": {"shortest_edge": 43}}),
    "convnext, large": ("convnext.ConvNext", OLD_CONVNEXT | {"crop_pct": 1.0, "size": 384}),
    "clip": ("clip.CLIP", {"image_processor_type": "CLIPImageProcessor"}),
    "clip of old": (
        "clip.CLIP",
        {"feature_extractor_type": "CLIPFeatureExtractor", "size": 36, "crop_size": 33, "do_center_crop": True},
    ),
    "clip, a portrait": (
        "clip.CLIP",
        {
            "image_processor_type": "CLIPImageProcessor",
            "size": {"shortest_edge": 45},
            "crop_size": {"height": 45, "width": 32},
            "resample": 2,
        },
    ),
    "llava": (
        "llava.Llava",
        {"image_processor_type": "LlavaImageProcessor", "size": {"shortest_edge": 30}, "crop_size": 28},
    ),
    "siglip": ("siglip.Siglip", {"image_processor_type": "SiglipImageProcessor", "size": {"height": 33, "width": 33}}),
    "siglip, in short": ("siglip.Siglip", {"image_processor_type": "SiglipImageProcessor"}),
    "bit": ("bit.Bit", {"image_processor_type": "BitImageProcessor", "size": {"shortest_edge": 34}, "crop_size": 28}),
    "blip": ("blip.Blip", {"image_processor_type": "BlipImageProcessor", "size": {"height": 48, "width": 48}}),
    "without a norm": ("vit.ViT", {"image_processor_type": "ViTImageProcessor", "size": 24, "do_normalize": False}),
    "one number for all": ("vit.ViT", OLD_VIT | {"size": 24, "image_mean": 0.25, "image_std": 0.5}),
    "null is false": ("deit.DeiT", {"image_processor_type": "DeiTImageProcessor", "do_center_crop": None, "size": 24}),
    "convnext, null": ("convnext.ConvNext", OLD_CONVNEXT | {"crop_pct": None, "size": 384}),
} | {f"resample {number}": ("vit.ViT", OLD_VIT | {"resample": number, "size": 24}) for number in range(6)}


PROCESSORS = {which.split(".")[1]: which.split(".")[0] for which, _ in FILES.values()}
"""The folder of each class, by its stem."""


def processor_class(stem):
    """The class of transformers that works without torchvision."""
    module = import_module(f"transformers.models.{PROCESSORS[stem]}.image_processing_pil_{PROCESSORS[stem]}")
    return getattr(module, f"{stem}ImageProcessorPil")


def theirs(which, given, picture):
    """The pixel values that transformers makes of a picture without torchvision, [3, height, width]."""
    processor = processor_class(which.split(".")[1]).from_dict(given)
    return np.array(processor(picture, return_tensors="np")["pixel_values"][0])


def ours(given, picture, **exif):
    """The same by an exported bundle's rules, and the ImageSpec that says them."""
    spec = read_image_spec(given, "vit", 3)
    file = io.BytesIO()
    picture.save(file, "PNG", **exif)
    return read_pixel_values(file.getvalue(), spec), spec


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("name", FILES)
def test_pixels_are_those_of_transformers(name, size):
    """Within 1/255 before the norm, whatever the processor and the picture's shape. Really they are within 1e-6."""
    which, given = FILES[name]
    width, height = SIZES[size]
    picture = Image.fromarray(RANDOM.integers(0, 256, (height, width, 3), np.uint8))

    actual, spec = ours(given, picture)

    # Each value twice: rescaled by 255 in another order, then normalised in float32.
    tolerance = 1e-6 / min(spec.std)
    assert theirs(which, given, picture).shape == actual.shape
    np.testing.assert_allclose(theirs(which, given, picture), actual, atol=tolerance)


@pytest.mark.parametrize("mode", ["L", "P", "RGBA", "LA", "1"])
def test_other_modes_are_what_a_processor_makes_of_them_that_converts(mode):
    """With do_convert_rgb, transformers too lays what is transparent over white."""
    given = {"image_processor_type": "CLIPImageProcessor", "size": 36, "crop_size": 33, "do_normalize": False}
    pixels = RANDOM.integers(0, 256, (41, 57, 4), np.uint8)
    picture = Image.fromarray(pixels, "RGBA").convert("RGB" if mode == "P" else mode)
    picture = picture.quantize(64) if mode == "P" else picture
    actual, _ = ours(given, picture)
    np.testing.assert_allclose(theirs("clip.CLIP", given, picture), actual, atol=1e-6)


def test_a_photograph_is_turned_by_us_alone():
    """Our pixels are those that transformers makes of the upright picture. It reads a lying one as it lies."""
    given = {"image_processor_type": "ViTImageProcessor", "size": 24}
    lying = Image.fromarray(RANDOM.integers(0, 256, (20, 30, 3), np.uint8))
    exif = Image.Exif()
    exif[0x0112] = 6
    actual, _ = ours(given, lying, exif=exif)
    upright = lying.transpose(Image.Transpose.ROTATE_270)
    np.testing.assert_allclose(theirs("vit.ViT", given, upright), actual, atol=1e-5)


REFUSED = {
    "do_pad": {"do_pad": True, "pad_size": {"height": 40, "width": 40}},
    "do_pad is 0": {"do_pad": 0},
    "do_thumbnail": {"do_thumbnail": True},
    "do_align_long_axis": {"do_align_long_axis": True},
    "use_square_size": {"use_square_size": True},
    "size_divisor": {"size_divisor": 32},
    "size_divisor is 0.0": {"size_divisor": 0.0},
    "do_resize is false": {"do_resize": False},
    "do_rescale is false": {"do_rescale": False},
    "rescale_factor is 0.0078": {"rescale_factor": 1 / 127.5},
    "resample is 6": {"resample": 6},
    "resample is True": {"resample": True},
    "size has shortest_edge, longest_edge": {"size": {"shortest_edge": 800, "longest_edge": 1333}},
    "size has longest_edge": {"size": {"longest_edge": 800}},
    "size must be a whole number from 1 to 4096, not 5000": {"size": 5000},
    "size.height must be a whole number": {"size": {"height": 2.5, "width": 3}},
    "size.shortest_edge without do_center_crop": {"size": {"shortest_edge": 224}},
    "crop_size is missing": {"do_center_crop": True},
    r"image.resize_height \(24\) is less than height \(30\)": {"size": 24, "do_center_crop": True, "crop_size": 30},
    r"image.shortest_edge \(24\) is less": {"size": {"shortest_edge": 24}, "do_center_crop": True, "crop_size": 30},
    "crop_size has shortest_edge": {"do_center_crop": True, "crop_size": {"shortest_edge": 20}},
    "size must be a whole number from 1 to 4096, not None": {"size": None},
    "image_mean must have a number for each of 3 channels, not None": {"image_mean": None},
    "do_normalize must be true or false, not 1": {"do_normalize": 1},
    "image_mean must have a number for each of 3 channels": {"image_mean": [0.5]},
    "image_std must have": {"image_std": [1, 1, float("nan")]},
    "image_processor_type 'PixtralImageProcessor' is none of ViTImageProcessor": {
        "image_processor_type": "PixtralImageProcessor"
    },
    "image_processor_type 7": {"image_processor_type": 7},
}


@pytest.mark.parametrize("complaint", REFUSED)
def test_what_changes_pixels_and_cannot_be_done_is_refused_by_name(complaint):
    """Never silently other pixels."""
    given = {"image_processor_type": "ViTImageProcessor", **REFUSED[complaint]}
    with pytest.raises(CheckpointError, match=rf"^preprocessor_config.json: .*{complaint}"):
        read_image_spec(given, "vit", 3)


@pytest.mark.parametrize(
    ("complaint", "more"),
    {
        "do_center_crop is true": {"do_center_crop": True, "crop_size": 20},
        "size must be a shortest_edge": {"size": {"height": 20, "width": 20}},
        "crop_pct is 0": {"size": 20, "crop_pct": 0},
        "crop_pct is 1.5": {"size": 20, "crop_pct": 1.5},
        "crop_pct must be a whole number from 1 to 4096": {"size": 20, "crop_pct": 1e-320},
    }.items(),
)
def test_convnext_has_a_rule_of_its_own(complaint, more):
    """What its processor of transformers would fail at, or do beyond the rule, is refused too."""
    with pytest.raises(CheckpointError, match=complaint):
        read_image_spec({"image_processor_type": "ConvNextImageProcessor", **more}, "convnext", 3)


def test_without_a_class_the_model_says_which():
    """As transformers does; a model that Weft does not know is refused."""
    assert 256 == read_image_spec({}, "deit", 3).resize_height
    assert 384 == read_image_spec({}, "resnet", 3).height
    with pytest.raises(CheckpointError, match="names no image_processor_type, and 'donut' has none"):
        read_image_spec({}, "donut", 3)
    with pytest.raises(CheckpointError, match="is no object"):
        read_image_spec([], "vit", 3)


def test_a_grey_model_has_one_of_each():
    """A mean for one channel, as the class has it or as the file says."""
    grey = read_image_spec({"image_mean": [0.25], "image_std": 0.5}, "vit", 1)
    assert ([0.25], [0.5]) == (list(grey.mean), list(grey.std))
    assert [0.5] == list(read_image_spec({}, "vit", 1).mean)


@pytest.mark.parametrize(
    "spec",
    [
        {"shortest_edge": 9},
        {"shortest_edge": 12, "resize_height": 12},
        {"resize_height": 9, "resize_width": 12},
        {"resize_height": 12, "resize_width": 9},
    ],
)
def test_a_picture_is_never_smaller_than_what_is_cut_out_of_it(spec):
    """A spec that would need padding is no spec, and neither is one that says two things."""
    sides = {"height": 10, "width": 10}
    assert resizing_fault(pb.ImageSpec(**sides, **spec)) is not None
    assert resizing_fault(pb.ImageSpec(**sides, shortest_edge=10)) is None
    assert resizing_fault(pb.ImageSpec(**sides, resize_width=11)) is None
