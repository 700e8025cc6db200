"""LLaVA-OneVision (Li et al. 2024): SigLIP's image encoder and a projector before Qwen2, or Llama or Mistral."""

from dataclasses import replace
from typing import Any

from weft_export.converters.converter import Converter, HfCheckpoint
from weft_export.converters.fields import ACTIVATIONS, Fields
from weft_export.converters.llava import LLAVA, behind_tower, decoder_sizes, feature_layers, joined_names, parts_of
from weft_export.converters.pictures import read_picture_spec
from weft_export.converters.sight import put_tiling, with_room
from weft_export.converters.siglip import tower_names, tower_sizes
from weft_export.converters.sources import Names, computed
from weft_export.families.llava_onevision import LlavaOnevisionConfig, TileSightConfig


def sizes(hf: HfCheckpoint) -> LlavaOnevisionConfig:
    """As LLaVA's. Unless a context is chosen, the largest picture fits, and as many tokens as usual beside it."""
    fields = hf.fields
    fields.skip("image_token_index", "image_token_id", "video_token_index", "video_token_id", "vocab_size")
    text, vision = parts_of(fields)
    sight = _sight(hf, vision)
    image = read_picture_spec(hf, sight.channels)
    image.grid_rows, image.grid_columns = sight.grid
    put_tiling(image, hf)
    return LlavaOnevisionConfig(**decoder_sizes(with_room(hf, text, image, "qwen2"), text, "qwen2"), sight=sight)


def _sight(hf: HfCheckpoint, vision: Fields) -> TileSightConfig:
    fields = hf.fields
    if "model_type" not in vision:
        raise vision.wrong("model_type", "must be 'siglip_vision_model'")
    vision.only("model_type", "siglip_vision_model")
    vision.skip("vision_use_head", "projection_dim", "vocab_size")
    # Of places without a class token none is left out.
    fields.only("vision_feature_select_strategy", "full")
    tower: dict[str, Any] = tower_sizes(hf, vision)
    return TileSightConfig(
        **tower,
        feature_layers=feature_layers(fields, tower["num_layers"], -1),
        projector_activation=fields.among("projector_hidden_act", ACTIVATIONS, "gelu"),
        projector_bias=fields.flag("multimodal_projector_bias", default=True),
    )


def names(config: LlavaOnevisionConfig) -> Names:
    """LLaVA's with those of a SigLIP, and what ends a row."""
    row_end = computed(lambda vector: vector[None], "image_newline")
    return {**joined_names(config), **behind_tower(tower_names("")), "row_end": row_end}


LLAVA_ONEVISION: Converter = replace(
    LLAVA,
    model_type="llava_onevision",
    architectures=("LlavaOnevisionForConditionalGeneration",),
    family="llava_onevision",
    sizes=sizes,
    names=names,
    # A head and the norm before it: what makes one vector of a picture.
    ignored=(*LLAVA.ignored, r"vision_tower\.head\..*"),
)
CONVERTERS = (LLAVA_ONEVISION,)
