"""Idefics 3 (Laurencon et al. 2024) and SmolVLM (Marafioti et al. 2025): SigLIP's encoder of tiles before Llama."""

from dataclasses import replace
from math import isqrt

import torch
from torch import Tensor

from weft_export.converters.converter import Converter, HfCheckpoint
from weft_export.converters.fields import ACTIVATIONS, Fields
from weft_export.converters.llama import llama_names
from weft_export.converters.llava import decoder_sizes, parts_of
from weft_export.converters.pictures import read_picture_spec
from weft_export.converters.sight import with_room
from weft_export.converters.siglip import encoder_names
from weft_export.converters.sources import Names, computed, layer_names, renamed
from weft_export.errors import CheckpointError
from weft_export.families.idefics3 import Idefics3Config, ShuffledSightConfig
from weft_export.families.siglip import SiglipSizes

_POSITIONS = "model.vision_model.embeddings.position_embedding.weight"


def sizes(hf: HfCheckpoint) -> Idefics3Config:
    """Two objects of config.json describe the two sides. The largest picture fits, unless a context is chosen."""
    fields = hf.fields
    # The token of a picture is read beside the tokenizer. The others are of training, and of files of transformers 4.
    fields.skip("image_token_id", "vocab_size", "use_reentrant_checkpointing", "image_seq_len")
    text, vision = parts_of(fields)
    _skip_others(text, vision)
    sight = _sight(hf, vision)
    image = read_picture_spec(hf, sight.channels)
    image.grid_rows, image.grid_columns = sight.grid
    decoder = decoder_sizes(with_room(hf, text, image, "llama"), text, "llama", says_tied=False)
    return Idefics3Config(**decoder, sight=sight)


def _skip_others(text: Fields, vision: Fields) -> None:
    """Say of fields that training had, in files of transformers 4: Llama's class reads none of them."""
    text.skip("neftune_noise_alpha", "perceiver_config", "pixel_shuffle_factor")
    for each in ("qk_layer_norms", "use_resampler", "rope_interleaved"):
        text.only(each, False)
    # How large pictures are is read beside the weights.
    vision.skip("size", "max_image_size", "use_base_siglip", "tie_word_embeddings")


def _sight(hf: HfCheckpoint, vision: Fields) -> ShuffledSightConfig:
    vision.only("model_type", "idefics3", "idefics3_vision", "smolvlm_vision", "siglip_vision_model")
    channels = vision.whole("num_channels", 3)
    image = read_picture_spec(hf, channels)
    tower = SiglipSizes(
        channels=channels,
        image_height=image.height,
        image_width=image.width,
        patch_size=_side(vision, "patch_size", 32),
        d_model=vision.whole("hidden_size", 1152),
        num_heads=vision.whole("num_attention_heads", 16),
        d_ff=vision.whole("intermediate_size", 3072),
        num_layers=vision.whole("num_hidden_layers", 12),
        norm_eps=vision.number("layer_norm_eps", 1e-6),
        activation=vision.among("hidden_act", ACTIVATIONS, "gelu_pytorch_tanh"),
    )
    if _side(vision, "image_size", 224) < tower.patch_size:
        raise vision.wrong("image_size", "is smaller than a patch")
    cell = hf.fields.whole("scale_factor", 2)
    if cell < 1 or tower.grid[0] % cell:
        raise hf.fields.wrong("scale_factor", f"must divide the {tower.grid[0]} patches of a side of a tile")
    return ShuffledSightConfig(tower=tower, cell=cell)


def _side(vision: Fields, name: str, usual: int) -> int:
    side, across = vision.sides(name, usual)
    if side != across:
        raise vision.wrong(name, "must be the same down and across")
    return side


def names(config: Idefics3Config) -> Names:
    """Llama's names behind one prefix, but for the head, and SigLIP's behind another."""
    return {
        **renamed(llama_names(config), _theirs),
        **layer_names(encoder_names(), "tower.", "model."),
        "connector.weight": "model.connector.modality_projection.proj.weight",
    }


def _theirs(name: str) -> str:
    return f"model.text_model.{name.removeprefix('model.')}" if name.startswith("model.") else name


def positions(config: Idefics3Config, hf: HfCheckpoint) -> Names:
    """Each patch has the position that lies where it does, in a square of as many as the tower was made for."""
    vision = hf.fields.part("vision_config")
    across = _side(vision, "image_size", 224) // _side(vision, "patch_size", 32)
    side = config.sight.tower.grid[0]

    def placed(table: Tensor) -> Tensor:
        if isqrt(len(table)) != across:
            raise CheckpointError(f"{_POSITIONS} has {len(table)} positions, and config.json makes {across**2}")
        return table[_places(across, side)]

    return {"tower.positions": computed(placed, _POSITIONS)}


def _places(across: int, side: int) -> Tensor:
    """Return where each of side x side patches lies among across x across positions. Its roundings are theirs."""
    edges = torch.arange(1 / across, 1.0, 1 / across)
    at = torch.arange(side, dtype=torch.float32) * (1.0 / torch.tensor(side))
    found = torch.bucketize(at.clamp(max=1.0 - 1e-6), edges, right=True)
    return (found[:, None] * across + found).flatten()


IDEFICS3 = Converter(
    model_type="idefics3",
    architectures=("Idefics3ForConditionalGeneration",),
    family="idefics3",
    sizes=sizes,
    names=names,
    computed_names=positions,
    ignored=(r".*\.position_ids", r".*\.rotary_emb\.inv_freq"),
    bias="embeddings.bias",
    nested="text_config",
)
SMOLVLM: Converter = replace(IDEFICS3, model_type="smolvlm", architectures=("SmolVLMForConditionalGeneration",))
CONVERTERS = (IDEFICS3, SMOLVLM)
