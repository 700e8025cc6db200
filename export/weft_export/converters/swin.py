"""Swin Transformer (Liu et al. 2021) and its second version (Liu et al. 2022)."""

import math
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import torch
from torch import Tensor

from weft_export.converters.converter import Converter, HfCheckpoint
from weft_export.converters.fields import ACTIVATIONS, Fields
from weft_export.converters.pictures import label_sizes, patches, picture_sides, skip_backbone
from weft_export.converters.sources import Names, Source, both, both_rows, computed, layer_names, rows, with_zero_keys
from weft_export.families.swin import SwinConfig, SwinSizes
from weft_proto.bundle_rules import MAX_IMAGE_SIDE


def sizes(hf: HfCheckpoint) -> SwinConfig:
    """Windows that fill each stage's grid; what would be padded is refused."""
    return SwinConfig(**label_sizes(hf), **body_sizes(hf, hf.fields))


def body_sizes(hf: HfCheckpoint, fields: Fields) -> dict[str, Any]:
    """Return the sizes of all but the head. fields: where they stand."""
    fields.only("use_absolute_embeddings", False)
    skip_backbone(fields)
    # The width of the last stage, which follows from embed_dim; and for pre-training.
    fields.skip("hidden_size", "num_layers", "encoder_stride", "path_norm")
    ratio = fields.number("mlp_ratio", 4.0)
    if ratio != int(ratio):
        raise fields.wrong("mlp_ratio", "must be a whole number")
    return {
        **picture_sides(hf, fields, patch_size=4),
        "d_model": fields.whole("embed_dim", 96),
        "depths": tuple(fields.list("depths", [2, 2, 6, 2])),
        "num_heads": tuple(fields.list("num_heads", [3, 6, 12, 24])),
        "window_size": fields.whole("window_size", 7),
        "expansion": int(ratio),
        "norm_eps": fields.number("layer_norm_eps", 1e-5),
        "activation": fields.among("hidden_act", ACTIVATIONS, "gelu"),
    }


def first_sizes(hf: HfCheckpoint) -> SwinConfig:
    """The first version has a table of biases for window_size alone."""
    hf.fields.only("qkv_bias", True)
    config = sizes(hf)
    check_windows(hf.fields, config)
    return config


def check_windows(fields: Fields, config: SwinSizes) -> None:
    """Refuse windows that are larger than a grid: the first version has a table of biases for window_size alone."""
    for stage in range(len(config.depths)):
        if config.window_of(stage) < config.window_size:
            rows, columns = config.grid_of(stage)
            raise fields.wrong(
                "window_size", f"is larger than the grid of stage {stage}, {rows} x {columns}, which is not supported"
            )


def second_sizes(hf: HfCheckpoint) -> SwinConfig:
    """The second version makes its windows as small as a grid is, and computes their biases."""
    fields = hf.fields
    fields.only("qkv_bias", True)
    fields.list("pretrained_window_sizes", [0])
    config = sizes(hf)
    for stage in range(len(config.depths)):
        rows, columns = config.grid_of(stage)
        # transformers decides by the height alone whether windows are shifted.
        if columns < rows and columns <= config.window_size:
            raise fields.wrong(
                "window_size", f"fills the width of stage {stage}, {rows} x {columns}, which is not supported"
            )
    return config


def first_names(config: SwinConfig) -> Names:
    """Their names, by stage and block; ours count blocks and mergings together."""
    return {**body_names("swin", config), **_head("swin")}


def body_names(model: str, config: SwinSizes) -> dict[str, Source | str]:
    """Return those of all but the head. model: what theirs begin with."""
    names = _names(model, config, _first_block)
    for ours, theirs in _mergings(model, config):
        names |= {f"{ours}.norm.{part}": _swapped(f"{theirs}.norm.{part}") for part in ("weight", "bias")}
    return names


def _head(model: str) -> dict[str, Source | str]:
    return {**both("norm", f"{model}.layernorm"), **both("head", "classifier")}


def second_names(config: SwinConfig) -> Names:
    """The same for the second version. See second_biases for what is computed."""
    names = {**_names("swinv2", config, _second_block), **_head("swinv2")}
    for ours, theirs in _mergings("swinv2", config):
        names |= both(f"{ours}.norm", f"{theirs}.norm")
    return names


def second_biases(config: SwinConfig, hf: HfCheckpoint) -> Names:
    """Compute the table of each block's biases, as the paper's network does (section 3.3)."""
    trained = hf.fields.list("pretrained_window_sizes", [0])
    if not all(type(each) is int and 0 <= each <= MAX_IMAGE_SIDE for each in trained):
        raise hf.fields.wrong("pretrained_window_sizes", f"must have whole numbers in [0, {MAX_IMAGE_SIDE}]")
    names: dict[str, Source | str] = {}
    for stage, _, ours, theirs in _blocks("swinv2", config):
        network = f"{theirs}.attention.self.continuous_position_bias_mlp"
        window = config.window_of(stage)
        offsets = log_offsets(window, trained[stage] if stage < len(trained) else 0)
        names[f"{ours}.attention.bias.table"] = computed(
            partial(_biases, offsets), f"{network}.0.weight", f"{network}.0.bias", f"{network}.2.weight"
        )
    return names


def log_offsets(window: int, trained_window: int) -> list[tuple[float, float]]:
    """Return for each offset down and across, by rows of GridBias's table, its logarithm (eq. 4).

    Offsets are shares of 8: of the window that the network was trained with, if it is another.
    """
    largest = max((trained_window or window) - 1, 1)
    line = [offset * 8 / largest for offset in range(1 - window, window)]
    logs = [math.copysign(math.log2(abs(offset) + 1) / math.log2(8), offset) for offset in line]
    return [(down, across) for down in logs for across in logs]


def _biases(offsets: list[tuple[float, float]], inner: Tensor, inner_bias: Tensor, outer: Tensor) -> Tensor:
    hidden = (torch.tensor(offsets, device=inner.device) @ inner.t() + inner_bias).relu()
    return 16 * (hidden @ outer.t()).sigmoid()


def _blocks(model: str, config: SwinSizes) -> Iterator[tuple[int, int, str, str]]:
    """Yield each block: its stage, its place there, our name and theirs. A merging stands before each later stage."""
    place = 0
    for stage, depth in enumerate(config.depths):
        for block in range(depth):
            yield stage, block, f"blocks.{place + block}", f"{model}.encoder.layers.{stage}.blocks.{block}"
        place += depth + 1


def _mergings(model: str, config: SwinSizes) -> Iterator[tuple[str, str]]:
    """Yield our name of each merging, and theirs."""
    place = 0
    for stage, depth in enumerate(config.depths[:-1]):
        place += depth
        yield f"blocks.{place}", f"{model}.encoder.layers.{stage}.downsample"
        place += 1


def _names(model: str, config: SwinSizes, block: Callable[[str], Names]) -> dict[str, Source | str]:
    """Return the sources that both versions have, without a head."""
    names = {
        **patches("patches.projection", f"{model}.embeddings.patch_embeddings.projection"),
        **both("patch_norm", f"{model}.embeddings.norm"),
    }
    for _, _, ours, theirs in _blocks(model, config):
        names |= layer_names(block(theirs), f"{ours}.", "")
        names |= {
            **both(f"{ours}.attention_norm", f"{theirs}.layernorm_before"),
            **both(f"{ours}.feed_forward_norm", f"{theirs}.layernorm_after"),
            **both(f"{ours}.attention.output", f"{theirs}.attention.output.dense"),
            **both(f"{ours}.feed_forward.up_proj", f"{theirs}.intermediate.dense"),
            **both(f"{ours}.feed_forward.down_proj", f"{theirs}.output.dense"),
        }
    for ours, theirs in _mergings(model, config):
        names[f"{ours}.reduction.weight"] = _swapped(f"{theirs}.reduction.weight")
    return names


def _first_block(theirs: str) -> Names:
    attention = f"{theirs}.attention.self"
    return {
        **both_rows("attention.qkv", f"{attention}.{{query,key,value}}"),
        "attention.bias.table": f"{attention}.relative_position_bias_table",
    }


def _second_block(theirs: str) -> Names:
    attention = f"{theirs}.attention.self"
    return {
        "attention.qkv.weight": rows(f"{attention}.{{query,key,value}}.weight"),
        "attention.qkv.bias": with_zero_keys(f"{attention}.query.bias", f"{attention}.value.bias"),
        "attention.scale": computed(lambda scale: scale.clamp(max=math.log(100)).exp(), f"{attention}.logit_scale"),
    }


def _swapped(name: str) -> Source:
    """Swap the second and the third quarter of what a merging is given: they read 2 x 2 neighbours by columns."""

    def make(tensor: Tensor) -> Tensor:
        first, second, third, fourth = tensor.chunk(4, dim=-1)
        return torch.cat((first, third, second, fourth), dim=-1)

    return computed(make, name)


_IGNORED = (r".*\.relative_(position_index|coords_table)", r".*\.attn_mask", r"\w+\.embeddings\.mask_token")

SWIN = Converter(
    model_type="swin",
    architectures=("SwinForImageClassification",),
    family="swin",
    sizes=first_sizes,
    names=first_names,
    ignored=_IGNORED,
)
SWIN_V2 = Converter(
    model_type="swinv2",
    architectures=("Swinv2ForImageClassification",),
    family="swin_v2",
    sizes=second_sizes,
    names=second_names,
    computed_names=second_biases,
    ignored=_IGNORED,
)
CONVERTERS = (SWIN, SWIN_V2)
