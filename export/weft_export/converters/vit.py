"""ViT (Dosovitskiy et al. 2021) and DeiT (Touvron et al. 2021)."""

from typing import Any

import torch

from weft_export.converters.converter import Converter, HfCheckpoint
from weft_export.converters.fields import ACTIVATIONS
from weft_export.converters.pictures import (
    patches,
    picture_pooling,
    picture_sides,
    picture_sizes,
    vit_layer,
    without_batch,
)
from weft_export.converters.sources import Names, Source, both, computed, layer_names
from weft_export.families.vit import VitConfig, VitEmbedderConfig

PARTS = ("weight", "bias")


def sizes(hf: HfCheckpoint, *, distillation: bool = False) -> VitConfig:
    """A class token, pre-norm layers, and a linear head."""
    fields = hf.fields
    # They are for pre-training, or for a pooler that classifiers do without.
    fields.skip("encoder_stride", "pooler_act", "pooler_output_size")
    return VitConfig(
        **picture_sizes(hf),
        d_model=fields.whole("hidden_size", 768),
        num_heads=fields.whole("num_attention_heads", 12),
        d_ff=fields.whole("intermediate_size", 3072),
        num_layers=fields.whole("num_hidden_layers", 12),
        distillation=distillation,
        mean_of_logits=distillation,
        norm_eps=fields.number("layer_norm_eps", 1e-12),
        activation=fields.among("hidden_act", ACTIVATIONS, "gelu"),
        qkv_bias=fields.flag("qkv_bias", default=True),
    )


def deit_sizes(hf: HfCheckpoint) -> VitConfig:
    """The same with a distillation token."""
    return sizes(hf, distillation=True)


def body(model: str) -> dict[str, Source | str]:
    """Return the sources of all but the heads."""
    return {
        "class_token": f"{model}.embeddings.cls_token",
        "positions": without_batch(f"{model}.embeddings.position_embeddings"),
        **patches("patches.projection", f"{model}.embeddings.patch_embeddings.projection"),
        **layer_names(vit_layer(f"{model}.encoder.layer.{{}}"), "encoder.layers.{}.", ""),
        **both("encoder.norm", f"{model}.layernorm"),
    }


def embedder_sizes(hf: HfCheckpoint) -> VitEmbedderConfig:
    """The body alone."""
    fields = hf.fields
    fields.skip("encoder_stride", "pooler_act", "pooler_output_size")
    sides: dict[str, Any] = picture_sides(hf)
    return VitEmbedderConfig(
        **sides,
        d_model=fields.whole("hidden_size", 768),
        num_heads=fields.whole("num_attention_heads", 12),
        d_ff=fields.whole("intermediate_size", 3072),
        num_layers=fields.whole("num_hidden_layers", 12),
        norm_eps=fields.number("layer_norm_eps", 1e-12),
        activation=fields.among("hidden_act", ACTIVATIONS, "gelu"),
        qkv_bias=fields.flag("qkv_bias", default=True),
        pooling=picture_pooling(hf),
    )


def embedder_names(_: VitEmbedderConfig) -> Names:
    """Their names."""
    return body("vit")


def vit_names(_: VitConfig) -> Names:
    """Their names."""
    return {**body("vit"), **both("head", "classifier")}


def teacher_names(_: VitConfig) -> Names:
    """The same for DeiT with both heads."""
    return {
        **body("deit"),
        "distillation_token": "deit.embeddings.distillation_token",
        **both("head", "cls_classifier"),
        **both("distillation_head", "distillation_classifier"),
    }


def deit_names(_: VitConfig) -> Names:
    """The same where only the class token has a head: the mean of twice that head and of nothing is that head."""
    return {
        **body("deit"),
        "distillation_token": "deit.embeddings.distillation_token",
        **{f"head.{part}": computed(lambda tensor: 2 * tensor, f"classifier.{part}") for part in PARTS},
        **{f"distillation_head.{part}": computed(torch.zeros_like, f"classifier.{part}") for part in PARTS},
    }


_IGNORED = (r"\w+\.embeddings\.mask_token", r"\w+\.pooler\..*")

VIT = Converter(
    model_type="vit",
    architectures=("ViTForImageClassification",),
    family="vit",
    sizes=sizes,
    names=vit_names,
    ignored=_IGNORED,
)
VIT_BODY = Converter(
    model_type="vit",
    architectures=("ViTModel",),
    family="vit_embedder",
    sizes=embedder_sizes,
    names=embedder_names,
    prefix="vit.",
    ignored=(*_IGNORED, r"pooler\..*", r"embeddings\.mask_token"),
)
DEIT = Converter(
    model_type="deit",
    architectures=("DeiTForImageClassificationWithTeacher",),
    family="vit",
    sizes=deit_sizes,
    names=teacher_names,
    ignored=_IGNORED,
)
DEIT_ALONE = Converter(
    model_type="deit",
    architectures=("DeiTForImageClassification",),
    family="vit",
    sizes=deit_sizes,
    names=deit_names,
    ignored=_IGNORED,
)
CONVERTERS = (VIT, VIT_BODY, DEIT, DEIT_ALONE)
