"""DINOv2 (Oquab et al. 2023): a ViT whose layers scale what they add, for pictures of any size; also with registers."""

from dataclasses import replace

import torch
from torch import Tensor
from torch.nn import functional

from weft_export.converters.converter import Converter, HfCheckpoint
from weft_export.converters.fields import ACTIVATIONS
from weft_export.converters.pictures import patches, picture_pooling, read_picture_spec, scaled
from weft_export.converters.sources import Names, both, both_rows, computed
from weft_export.families.vit import VitEmbedderConfig

REGISTERS = "dinov2_with_registers"


def sizes(hf: HfCheckpoint) -> VitEmbedderConfig:
    """Pictures are as large as the processor makes them. image_size is that of training."""
    fields = hf.fields
    # They are for pre-training, for training, or for backbones.
    fields.skip("use_mask_token", "layerscale_value", "apply_layernorm", "reshape_hidden_states", "image_size")
    fields.skip("out_features", "out_indices", "stage_names")
    fields.only("use_swiglu_ffn", False)
    channels, d_model = fields.whole("num_channels", 3), fields.whole("hidden_size", 768)
    spec = read_picture_spec(hf, channels)
    has_registers = fields.word("model_type") == REGISTERS
    if has_registers:
        # Of the files that Meta released. The library does so, whatever they say.
        fields.only("interpolate_antialias", True)
        fields.only("interpolate_offset", 0.0)
    side, across = fields.sides("patch_size", 16 if has_registers else 14)
    if side != across:
        raise fields.wrong("patch_size", "must be the same down and across")
    return VitEmbedderConfig(
        channels=channels,
        image_height=spec.height,
        image_width=spec.width,
        patch_size=side,
        d_model=d_model,
        num_heads=fields.whole("num_attention_heads", 12),
        d_ff=d_model * fields.whole("mlp_ratio", 4),
        num_layers=fields.whole("num_hidden_layers", 12),
        norm_eps=fields.number("layer_norm_eps", 1e-6),
        activation=fields.among("hidden_act", ACTIVATIONS, "gelu"),
        qkv_bias=fields.flag("qkv_bias", default=True),
        pooling=picture_pooling(hf),
        num_registers=fields.whole("num_register_tokens", 4) if has_registers else None,
    )


def names(config: VitEmbedderConfig) -> Names:
    """Their names. A scale of what a layer adds is part of its last product."""
    ours, theirs = "encoder.layers.{}", "encoder.layer.{}"

    def positions(table: Tensor) -> Tensor:
        fitted = _fitted(table[0], *config.grid, antialias=config.num_registers is not None)
        # A register has no place.
        return torch.cat((fitted[:1], fitted.new_zeros(config.num_registers or 0, fitted.shape[1]), fitted[1:]))

    return {
        **({"registers": "embeddings.register_tokens"} if config.num_registers else {}),
        "class_token": "embeddings.cls_token",
        "positions": computed(positions, "embeddings.position_embeddings"),
        **patches("patches.projection", "embeddings.patch_embeddings.projection"),
        **both("encoder.norm", "layernorm"),
        **both(f"{ours}.attention_norm", f"{theirs}.norm1"),
        **both(f"{ours}.feed_forward_norm", f"{theirs}.norm2"),
        **both_rows(f"{ours}.attention.qkv", f"{theirs}.attention.attention.{{query,key,value}}"),
        **scaled(f"{ours}.attention.output", f"{theirs}.attention.output.dense", f"{theirs}.layer_scale1.lambda1"),
        **both(f"{ours}.feed_forward.up_proj", f"{theirs}.mlp.fc1"),
        **scaled(f"{ours}.feed_forward.down_proj", f"{theirs}.mlp.fc2", f"{theirs}.layer_scale2.lambda1"),
    }


def _fitted(table: Tensor, rows: int, columns: int, *, antialias: bool) -> Tensor:
    """Return positions of a grid from those of the square that was trained, the class token's first, as transformers.

    table is [1 + side * side, d_model]; of the same square it stays as it is.
    """
    side = int((len(table) - 1) ** 0.5)
    if (rows, columns) == (side, side):
        return table
    square = table[1:].reshape(1, side, side, -1).permute(0, 3, 1, 2)
    size = (rows, columns)
    fitted = functional.interpolate(square, size=size, mode="bicubic", align_corners=False, antialias=antialias)
    return torch.cat((table[:1], fitted.permute(0, 2, 3, 1).flatten(0, 2)))


DINOV2 = Converter(
    model_type="dinov2",
    architectures=("Dinov2Model",),
    family="vit_embedder",
    sizes=sizes,
    names=names,
    ignored=(r"embeddings\.mask_token",),
)
WITH_REGISTERS = replace(DINOV2, model_type=REGISTERS, architectures=("Dinov2WithRegistersModel",))
CONVERTERS = (DINOV2, WITH_REGISTERS)
