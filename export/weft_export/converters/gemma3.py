"""Gemma 3 with pictures (Gemma Team 2025): SigLIP's image encoder, means of its patches, and Gemma 3's decoder."""

from dataclasses import fields as fields_of
from dataclasses import replace
from math import isqrt
from typing import Any

from weft_export.converters.converter import Converter, HfCheckpoint
from weft_export.converters.decoders import plus_one
from weft_export.converters.fields import Fields
from weft_export.converters.gemma import normed_sizes, sandwich_names
from weft_export.converters.llava import SEEING, behind_tower, parts_of
from weft_export.converters.pictures import read_picture_spec
from weft_export.converters.sight import with_room
from weft_export.converters.siglip import encoder_names, tower_sizes
from weft_export.converters.sources import Names, layer_names, transposed
from weft_export.families.decoder_only import DecoderOnlyConfig
from weft_export.families.gemma3 import Gemma3Config
from weft_export.families.siglip import MergedSightConfig, SiglipSizes

_PROJECTOR = "multi_modal_projector"
# What the decoder's class takes where text_config says nothing.
_ABSENT = {"vocab_size": 262_208, "hidden_size": 2304, "num_hidden_layers": 26, "num_attention_heads": 8}


def sizes(hf: HfCheckpoint) -> Gemma3Config:
    """Two objects of config.json describe the two sides."""
    fields = hf.fields
    # The token of a picture is read beside the tokenizer, and so is what stands around one.
    fields.skip("image_token_index", "image_token_id", "boi_token_index", "eoi_token_index")
    text, vision = parts_of(fields)
    sight = _sight(hf, vision)
    image = read_picture_spec(hf, sight.channels)
    image.grid_rows, image.grid_columns = sight.grid
    text.only("model_type", "gemma3_text")
    text.only("use_bidirectional_attention", False)
    for name, value in _ABSENT.items():
        text.take_for_granted(name, value)
    decoder = normed_sizes(replace(with_room(hf, text, image, "gemma3_text"), fields=text))
    return Gemma3Config(**sizes_of(hf, decoder), sight=sight)


def sizes_of(hf: HfCheckpoint, decoder: DecoderOnlyConfig) -> dict[str, Any]:
    """Return the sizes of a Gemma's decoder by their names. Words are tied where the top of config.json says so."""
    tied = hf.fields.flag("tie_word_embeddings", default=True)
    decoder = replace(decoder, embeddings=replace(decoder.embeddings, tied=tied))
    return {field.name: getattr(decoder, field.name) for field in fields_of(DecoderOnlyConfig)}


def _sight(hf: HfCheckpoint, vision: Fields) -> MergedSightConfig:
    fields = hf.fields
    tower = tower_of(hf, vision)
    count = fields.whole("mm_tokens_per_image", 256)
    side, patches = isqrt(count), tower.grid[0]
    if not side or side**2 != count or patches % side:
        raise fields.wrong(
            "mm_tokens_per_image", f"must be the square of what divides {patches}, the patches of a side"
        )
    return MergedSightConfig(tower=tower, cell=patches // side)


def tower_of(hf: HfCheckpoint, vision: Fields) -> SiglipSizes:
    """Return the sizes of a SigLIP whose last norm is read."""
    vision.only("model_type", "siglip_vision_model")
    vision.skip("vision_use_head", "vocab_size", "projection_dim", "projector_hidden_act", "num_image_tokens")
    tower: dict[str, Any] = tower_sizes(hf, vision)
    return SiglipSizes(**tower)


def names(config: Gemma3Config) -> Names:
    """Gemma 3's names behind one prefix, and SigLIP's behind another."""
    return {
        **layer_names(sandwich_names(config), "", "language_model."),
        "norm_of_places.weight": plus_one(f"{_PROJECTOR}.mm_soft_emb_norm.weight"),
        "projector.weight": transposed(f"{_PROJECTOR}.mm_input_projection_weight"),
        **behind_tower(encoder_names("")),
    }


GEMMA3 = Converter(
    model_type="gemma3",
    architectures=("Gemma3ForConditionalGeneration",),
    family="gemma3",
    sizes=sizes,
    names=names,
    spellings=SEEING,
    # A head makes one vector of a picture.
    ignored=(r"vision_tower\.head\..*", r".*\.position_ids", r".*\.rotary_emb\.inv_freq"),
    bias="embeddings.bias",
    nested="text_config",
)
CONVERTERS = (GEMMA3,)
