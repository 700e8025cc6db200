"""What configs and weights of classifiers of pictures have in common."""

from collections.abc import Mapping
from typing import Any

import torch

from weft_export.choices import POOLINGS, Pooling
from weft_export.converters.converter import HfCheckpoint
from weft_export.converters.fields import Fields, scoring_of
from weft_export.converters.image_processor import read_image_spec
from weft_export.converters.processor_keys import FILE, read_processor
from weft_export.converters.sources import Names, Source, both, both_rows, computed
from weft_export.errors import CheckpointError
from weft_proto.v1 import bundle_pb2

USUAL_PIXELS = 1280 * 28 * 28
"""The most pixels of a picture of any size, unless they are chosen: as transformers has it where no file says more."""


def read_picture_spec(hf: HfCheckpoint, channels: int) -> bundle_pb2.ImageSpec:
    """Return how pictures become pixels, without the grid.

    Raises:
        CheckpointError: no file says it, or it says what cannot be done.
    """
    place, given = read_processor(hf, "image_processor")
    image = read_image_spec(given, hf.fields.word("model_type"), channels, place=place)
    if image.tiling.max_pixels:
        _bound_pixels(image, hf, place)
    return image


def _bound_pixels(image: bundle_pb2.ImageSpec, hf: HfCheckpoint, place: str) -> None:
    """Make a picture have the most pixels that are chosen. Files of released models allow 16,384 places of one."""
    said, chosen = image.tiling.max_pixels, hf.options.max_pixels
    image.tiling.max_pixels = min(said, USUAL_PIXELS) if chosen is None else chosen
    if image.tiling.max_pixels != said:
        hf.fields.note(
            f"a picture is made to have at most {image.tiling.max_pixels:,} pixels, and {place} says {said:,}:"
            " --max-pixels chooses"
        )
    if image.tiling.min_pixels > image.tiling.max_pixels:
        raise CheckpointError(
            f"{place}: a picture has at least {image.tiling.min_pixels:,} pixels, and at most"
            f" {image.tiling.max_pixels:,}"
        )


def picture_sizes(hf: HfCheckpoint, fields: Fields | None = None, *, patch_size: int = 16) -> dict[str, Any]:
    """Return labels, channels, and the sides of pictures and patches, as `picture_sides`."""
    return {**label_sizes(hf), **picture_sides(hf, fields, patch_size=patch_size)}


def picture_sides(
    hf: HfCheckpoint, fields: Fields | None = None, *, image_size: int = 224, patch_size: int = 16
) -> dict[str, int]:
    """Return channels, and the sides of pictures and patches, by the names of a family's config.

    fields: where image_size, patch_size and num_channels stand, if not at the top of config.json.
    image_size, patch_size: what they are where nothing says it.
    """
    fields = fields or hf.fields
    channels = fields.whole("num_channels", 3)
    height, width = fields.sides("image_size", image_size)
    spec = read_picture_spec(hf, channels)
    if (spec.height, spec.width) != (height, width):
        found = f"{FILE} makes pictures of {spec.height} x {spec.width}"
        raise CheckpointError(f"config.json: image_size is {height} x {width}, and {found}")
    side, across = fields.sides("patch_size", patch_size)
    if side != across:
        raise fields.wrong("patch_size", "must be the same down and across")
    return {"channels": channels, "image_height": height, "image_width": width, "patch_size": side}


def picture_pooling(hf: HfCheckpoint) -> str:
    """Return what makes one vector of a picture. Raises CheckpointError unless it is chosen: no file says it."""
    chosen = hf.options.pooling
    if chosen not in (Pooling.CLS, Pooling.MEAN):
        raise CheckpointError("no file says how a picture becomes one vector; choose --pooling cls or mean")
    return POOLINGS[Pooling(chosen)].family


def label_sizes(hf: HfCheckpoint) -> dict[str, Any]:
    """Return the number of labels, and what their scores are."""
    num_labels = hf.fields.num_labels()
    return {"num_labels": num_labels, "scoring": scoring_of(hf.fields, num_labels)}


def skip_backbone(fields: Fields) -> None:
    """Say of fields that they choose outputs for other models to read."""
    fields.skip("out_features", "out_indices", "stage_names", "num_hidden_layers")


def squares_only(sizes: Mapping[str, int], name: str) -> None:
    """Refuse pictures that are not square, for which transformers mixes up the sides."""
    if sizes["image_height"] != sizes["image_width"]:
        raise CheckpointError(f"config.json: image_size is no square, which {name} is not supported with")


def patches(ours: str, theirs: str) -> Names:
    """Return the sources of a PatchEmbedding: theirs is a convolution."""
    weight = computed(lambda kernel: kernel.flatten(1), f"{theirs}.weight")
    return {f"{ours}.weight": weight, f"{ours}.bias": f"{theirs}.bias"}


def without_batch(name: str) -> Source:
    """Return a table without its leading axis of one."""
    return computed(lambda table: table.flatten(0, 1), name)


def vit_layer(theirs: str) -> dict[str, Source | str]:
    """Return the sources of an EncoderLayer, of a layer named as in ViT."""
    return {
        **both("attention_norm", f"{theirs}.layernorm_before"),
        **both("feed_forward_norm", f"{theirs}.layernorm_after"),
        **both_rows("attention.qkv", f"{theirs}.attention.attention.{{query,key,value}}"),
        **both("attention.output", f"{theirs}.attention.output.dense"),
        **both("feed_forward.up_proj", f"{theirs}.intermediate.dense"),
        **both("feed_forward.down_proj", f"{theirs}.output.dense"),
    }


def scaled(ours: str, theirs: str, scale: str) -> dict[str, Source | str]:
    """Return weight and bias of a product whose answer is multiplied by a scale of each number."""
    return {
        f"{ours}.weight": computed(lambda weight, by: by[:, None] * weight, f"{theirs}.weight", scale),
        f"{ours}.bias": computed(torch.mul, f"{theirs}.bias", scale),
    }
