"""CLIP (Radford et al. 2021): both encoders, each alone, or that of pictures with labels that stay."""

from typing import Any

from weft_export.converters.clip_texts import (
    check_pooling,
    encoder_layer,
    read_text_sizes,
    text_config,
    text_head,
    tower_names,
)
from weft_export.converters.converter import Converter, HfCheckpoint
from weft_export.converters.fields import ACTIVATIONS, Fields
from weft_export.converters.pictures import label_sizes, patches, picture_sides
from weft_export.converters.sources import Names, Source, both, computed, layer_names
from weft_export.families.clip import ClipConfig
from weft_export.families.clip_vision import ClipEmbedderConfig, ClipVisionConfig
from weft_export.families.text_embedder import TextEmbedderConfig


def sizes(hf: HfCheckpoint) -> ClipVisionConfig:
    """A norm before the layers, and a head that was trained for its labels."""
    # The text encoder is not in the file. The other two are of what joins both.
    hf.fields.skip("text_config", "projection_dim", "logit_scale_init_value")
    labels: dict[str, Any] = label_sizes(hf)
    return ClipVisionConfig(**labels, **encoder_sizes(hf))


def whole_sizes(hf: HfCheckpoint) -> ClipVisionConfig:
    """The vectors of pictures are compared with those of the labels' texts."""
    hf.fields.skip("logit_scale_init_value")
    read_text_sizes(hf.fields.part("text_config"))
    width = hf.fields.whole("projection_dim", 512)
    return ClipVisionConfig(num_labels=len(hf.options.label_names), **encoder_sizes(hf), d_embedding=width)


def pair_sizes(hf: HfCheckpoint) -> ClipConfig:
    """Both towers; labels come with a request."""
    hf.fields.skip("logit_scale_init_value")
    width = hf.fields.whole("projection_dim", 512)
    pictures = ClipEmbedderConfig(**encoder_sizes(hf), d_embedding=width)
    return ClipConfig(pictures=pictures, texts=text_config(hf, hf.fields.part("text_config"), width))


def texts_sizes(hf: HfCheckpoint) -> TextEmbedderConfig:
    """The text encoder alone, whose config is no part of another."""
    check_pooling(hf)
    return text_config(hf, hf.fields, hf.fields.whole("projection_dim", 512))


def embedder_sizes(hf: HfCheckpoint) -> ClipEmbedderConfig:
    """The image encoder alone, whose config is no part of another."""
    width = hf.fields.whole("projection_dim", 512)
    return ClipEmbedderConfig(**tower_sizes(hf, hf.fields), d_embedding=width)


def encoder_sizes(hf: HfCheckpoint) -> dict[str, Any]:
    """Return the sizes that stand in vision_config."""
    fields = hf.fields.part("vision_config")
    fields.skip("projection_dim", "model_type")
    return tower_sizes(hf, fields)


def tower_sizes(hf: HfCheckpoint, fields: Fields) -> dict[str, Any]:
    """Return the sizes of the image encoder."""
    return {
        **picture_sides(hf, fields, patch_size=32),
        "d_model": fields.whole("hidden_size", 768),
        "num_heads": fields.whole("num_attention_heads", 12),
        "d_ff": fields.whole("intermediate_size", 3072),
        "num_layers": fields.whole("num_hidden_layers", 12),
        "norm_eps": fields.number("layer_norm_eps", 1e-5),
        "activation": fields.among("hidden_act", ACTIVATIONS, "quick_gelu"),
    }


def encoder_names(theirs: str = "vision_model.") -> dict[str, Source | str]:
    """Return the sources of all but the head. All of their names begin with `theirs`."""
    patch = f"{theirs}embeddings.patch_embedding"
    return {
        "class_token": computed(lambda token: token[None, None], f"{theirs}embeddings.class_embedding"),
        "positions": f"{theirs}embeddings.position_embedding.weight",
        **patches("patches.projection", patch),
        # The patches have no bias.
        "patches.projection.bias": computed(lambda kernel: kernel.new_zeros(len(kernel)), f"{patch}.weight"),
        **both("first_norm", f"{theirs}pre_layrnorm"),
        **encoder_layer("layers.{}", f"{theirs}encoder.layers.{{}}"),
    }


def names(_: ClipVisionConfig) -> Names:
    """Their names."""
    return {**encoder_names(), **both("head", "classifier")}


def whole_names(_: ClipVisionConfig | ClipEmbedderConfig) -> Names:
    """The same for the whole model."""
    return {
        **encoder_names(),
        **both("norm", "vision_model.post_layernorm"),
        "projection.weight": "visual_projection.weight",
    }


def pair_names(config: ClipConfig) -> Names:
    """The same for both towers."""
    return {
        **layer_names(whole_names(config.pictures), "pictures.", ""),
        **layer_names(tower_names(config.texts), "texts.", ""),
        "log_scale": "logit_scale",
    }


def text_names(_: ClipVisionConfig, hf: HfCheckpoint) -> Names:
    """Compute the head of the labels' texts."""
    return {"head.weight": text_head(hf, read_text_sizes(hf.fields.part("text_config")))}


CLIP = Converter(
    model_type="clip",
    architectures=("CLIPForImageClassification",),
    family="clip_vision",
    sizes=sizes,
    names=names,
    # It norms the class token, which this head does not read.
    ignored=(r"vision_model\.post_layernorm\..*", r".*\.position_ids"),
)
CLIP_WHOLE = Converter(
    model_type="clip",
    architectures=("CLIPModel",),
    family="clip_vision",
    sizes=whole_sizes,
    names=whole_names,
    computed_names=text_names,
    takes_labels=True,
    ignored=(r".*\.position_ids",),
)
CLIP_PAIR = Converter(
    model_type="clip",
    architectures=("CLIPModel",),
    family="clip",
    sizes=pair_sizes,
    names=pair_names,
    ignored=(r".*\.position_ids",),
)
CLIP_TEXTS = Converter(
    model_type="clip_text_model",
    architectures=("CLIPTextModelWithProjection",),
    family="text_embedder",
    sizes=texts_sizes,
    names=tower_names,
    ignored=(r".*\.position_ids",),
)
CLIP_EMBEDDER = Converter(
    model_type="clip_vision_model",
    architectures=("CLIPVisionModelWithProjection",),
    family="clip_embedder",
    sizes=embedder_sizes,
    names=whole_names,
    ignored=(r".*\.position_ids",),
)
CONVERTERS = (CLIP, CLIP_PAIR, CLIP_WHOLE, CLIP_EMBEDDER, CLIP_TEXTS)
