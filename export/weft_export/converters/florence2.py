"""Florence-2 (Xiao et al. 2024), as transformers has it: DaViT and BART."""

from collections.abc import Callable
from dataclasses import fields as fields_of
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from weft_export.converters import bart
from weft_export.converters.converter import Converter, HfCheckpoint
from weft_export.converters.fields import ACTIVATIONS, Fields
from weft_export.converters.llava import parts_of
from weft_export.converters.pictures import read_picture_spec
from weft_export.converters.sources import Names, both, computed, from_row, layer_names
from weft_export.errors import CheckpointError
from weft_export.families.bart import BartConfig
from weft_export.families.davit import DavitConfig, DavitStage
from weft_export.families.florence2 import Florence2Config

# What its class takes where vision_config says nothing.
_STAGES: dict[str, list[Any]] = {
    "depths": [1, 1, 9, 1],
    "patch_size": [7, 3, 3, 3],
    "patch_stride": [4, 2, 2, 2],
    "patch_padding": [3, 1, 1, 1],
    "patch_prenorm": [False, True, True, True],
    "embed_dim": [128, 256, 512, 1024],
    "num_heads": [4, 8, 16, 32],
    "num_groups": [4, 8, 16, 32],
}
_TEXT, _VISION, _PROJECTOR = "model.language_model", "model.vision_tower", "model.multi_modal_projector"


def sizes(hf: HfCheckpoint) -> Florence2Config:
    """Two objects of config.json describe the parts."""
    fields = hf.fields
    _refuse_original(fields)
    # The token of a picture is read beside the tokenizer.
    fields.skip("image_token_id", "image_token_index")
    fields.only("is_encoder_decoder", True)
    fields.only("tie_word_embeddings", True)
    text, vision = parts_of(fields)
    text.among("model_type", {"bart": "bart"}, "bart")
    sight = _sight(hf, vision)
    written = bart.sizes_in("post", norm=True)(replace(hf, fields=text))
    if vision.whole("projection_dim", 1024) != written.d_model:
        raise vision.wrong("projection_dim", f"must be d_model of text_config, {written.d_model}")
    own = {field.name: getattr(written, field.name) for field in fields_of(BartConfig)}
    longest = text.whole("max_position_embeddings", 1024) - sight.num_places
    if longest < 1:
        raise text.wrong("max_position_embeddings", f"has no room behind the {sight.num_places} places of a picture")
    own["max_source_tokens"] = hf.max_source_tokens(longest)
    own["embeddings"] = replace(written.embeddings, bias=bool(hf.generation.banned), tied=True)
    return Florence2Config(**own, sight=sight)


def _refuse_original(fields: Fields) -> None:
    """Refuse Microsoft's own files: their class adds tokens to the tokenizer, and no file says which."""
    if fields.part("vision_config").word("model_type", "") == "davit":
        raise CheckpointError(
            "these are Microsoft's own files, for code of its authors, which is never run; transformers has the same"
            " weights as florence-community/Florence-2-base, -base-ft, -large and -large-ft: take a directory of these"
        )


def _sight(hf: HfCheckpoint, vision: Fields) -> DavitConfig:
    vision.only("model_type", "florence_vision")
    channels = vision.whole("in_channels", 3)
    image = read_picture_spec(hf, channels)
    columns = {name: vision.list(name, usual) for name, usual in _STAGES.items()}
    if len({len(column) for column in columns.values()}) != 1:
        raise vision.wrong("depths", f"must be as long as {', '.join(list(columns)[1:])}")
    ratio = vision.positive("mlp_ratio", 4.0)
    stages = [_stage(dict(zip(columns, row, strict=True)), ratio) for row in zip(*columns.values(), strict=True)]
    sight = DavitConfig(
        channels=channels,
        image_height=image.height,
        image_width=image.width,
        stages=tuple(stages),
        window_size=vision.whole("window_size", 12),
        qkv_bias=vision.flag("qkv_bias", default=True),
        activation=vision.among("activation_function", ACTIVATIONS, "gelu"),
    )
    if max(sight.grid) > vision.whole("max_position_embeddings", 50):
        raise vision.wrong("max_position_embeddings", f"is less than a side of the grid, {sight.grid}")
    # Of a picture, which is one moment, the first one is read.
    if vision.whole("max_temporal_embeddings", 100) < 1:
        raise vision.wrong("max_temporal_embeddings", "must be 1 or more")
    return sight


def _stage(said: dict[str, Any], ratio: float) -> DavitStage:
    width = said["embed_dim"]
    return DavitStage(
        d_model=width,
        num_blocks=said["depths"],
        num_heads=said["num_heads"],
        num_groups=said["num_groups"],
        d_ff=int(width * ratio) if isinstance(width, int) else width,
        patch_size=said["patch_size"],
        stride=said["patch_stride"],
        filled=said["patch_padding"],
        norm_first=said["patch_prenorm"],
    )


def names(config: Florence2Config) -> Names:
    """BART's names behind a prefix, DaViT's, and those of what is between them."""
    return {
        **bart.names_with(_positions, _TEXT)(config),
        **both("tower.embeddings.{}.convolution", f"{_VISION}.convs.{{}}.conv"),
        **both("tower.embeddings.{}.norm", f"{_VISION}.convs.{{}}.norm"),
        **layer_names(_blocks(), "tower.stages.{}.{}.", f"{_VISION}.blocks.{{}}.{{}}."),
        "projector.positions": computed(
            _placed(config.sight),
            f"{_PROJECTOR}.image_position_embed.row_embeddings.weight",
            f"{_PROJECTOR}.image_position_embed.column_embeddings.weight",
            f"{_PROJECTOR}.visual_temporal_embed.pos_idx_to_embed",
            optional=(f"{_PROJECTOR}.visual_temporal_embed.pos_idx_to_embed",),
        ),
        "projector.projection.weight": f"{_PROJECTOR}.image_projection.weight",
        **both("projector.norm", f"{_PROJECTOR}.image_proj_norm"),
    }


def _positions(_: BartConfig, ours: str, count: int, side: str) -> Names:
    """Positions are learned, from row 2 on. Those of a source are also those of a picture."""
    return {ours: from_row(bart.FIRST_ROW, f"{_TEXT}.{side}.embed_positions.weight", count)}


def _blocks() -> Names:
    """Return the names of a pair of blocks."""
    table: dict[str, Any] = {}
    for ours, theirs, attention in (
        ("windows", "spatial_block", "window_attn"),
        ("channels", "channel_block", "channel_attn"),
    ):
        table |= {
            **both(f"{ours}.attention_mixing.depthwise", f"{theirs}.conv1"),
            **both(f"{ours}.attention_norm", f"{theirs}.norm1"),
            **both(f"{ours}.attention.qkv", f"{theirs}.{attention}.qkv"),
            **both(f"{ours}.attention.output", f"{theirs}.{attention}.proj"),
            **both(f"{ours}.feed_forward_mixing.depthwise", f"{theirs}.conv2"),
            **both(f"{ours}.feed_forward_norm", f"{theirs}.norm2"),
            **both(f"{ours}.feed_forward.up_proj", f"{theirs}.ffn.fc1"),
            **both(f"{ours}.feed_forward.down_proj", f"{theirs}.ffn.fc2"),
        }
    return table


def _placed(sight: DavitConfig) -> Callable[..., Tensor]:
    """Return what makes the vector of each place: of its column, of its row, and of the one moment of a picture."""

    def make(rows: Tensor, columns: Tensor, moments: Tensor | None) -> Tensor:
        (high, wide) = sight.grid
        across, down = columns[:wide][None].expand(high, -1, -1), rows[:high][:, None].expand(-1, wide, -1)
        places = torch.cat((across, down), dim=-1).flatten(0, 1)
        if moments is None:
            # sin 0 and cos 0 in turns.
            moments = torch.arange(places.shape[-1], device=places.device)[None] % 2
        return places + moments[0]

    return make


FLORENCE2 = Converter(
    model_type="florence2",
    architectures=("Florence2ForConditionalGeneration",),
    family="florence2",
    sizes=sizes,
    names=names,
    ignored=(r"model\.language_model\.(encoder|decoder)\.version",),
    bias="decoder.embedding.bias",
    nested="text_config",
)
CONVERTERS = (FLORENCE2,)
