"""What models have in common that read pictures and write texts, beside their decoders."""

from typing import Any

import torch

from weft_export.converters.converter import HfCheckpoint
from weft_export.converters.fields import ACTIVATIONS, Fields
from weft_export.converters.pictures import patches, picture_sides, vit_layer, without_batch
from weft_export.converters.sources import Names, both, computed, layer_names
from weft_export.layers.style import Style


def encoder_sizes(hf: HfCheckpoint, fields: Fields, *, eps: float = 1e-12, image_size: int = 224) -> dict[str, Any]:
    """Return the sizes of an encoder of ViT's kind, by the names of VisionEncoderDecoderConfig.

    eps, image_size: that of its norms, and the side of pictures, where nothing says it.
    """
    fields.skip("tie_word_embeddings", "encoder_stride", "pooler_act", "pooler_output_size", "projection_dim")
    return {
        **picture_sides(hf, fields, image_size=image_size),
        "d_encoder": fields.whole("hidden_size", 768),
        "num_encoder_heads": fields.whole("num_attention_heads", 12),
        "d_encoder_ff": fields.whole("intermediate_size", 3072),
        "num_encoder_layers": fields.whole("num_hidden_layers", 12),
        "encoder_style": Style(
            norm_eps=fields.number("layer_norm_eps", eps),
            activation=fields.among("hidden_act", ACTIVATIONS, "gelu"),
            qkv_bias=fields.flag("qkv_bias", default=True),
        ),
    }


def vit_names(*, distilled: bool) -> Names:
    """Return the names of a ViT's body under `encoder.`; DeiT's has one more token."""
    tokens = [f"encoder.embeddings.{name}" for name in ("cls_token", "distillation_token")[: 1 + distilled]]
    return {
        "class_tokens": computed(lambda *parts: torch.cat(parts, dim=1)[0], *tokens),
        "positions": without_batch("encoder.embeddings.position_embeddings"),
        **patches("patches.projection", "encoder.embeddings.patch_embeddings.projection"),
        **layer_names(vit_layer("encoder.encoder.layer.{}"), "encoder.layers.{}.", ""),
        **both("encoder.norm", "encoder.layernorm"),
    }
