"""PaliGemma (Beyer et al. 2024) and PaliGemma 2: SigLIP's image encoder and one product before Gemma 1 or 2."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from dataclasses import fields as fields_of

from weft_export.converters import gemma
from weft_export.converters.converter import Converter, HfCheckpoint
from weft_export.converters.gemma3 import GEMMA3, sizes_of, tower_of
from weft_export.converters.llava import behind_tower, parts_of
from weft_export.converters.pictures import read_picture_spec
from weft_export.converters.sight import with_room
from weft_export.converters.siglip import encoder_names
from weft_export.converters.sources import Names, both, layer_names
from weft_export.families.decoder_only import DecoderOnlyConfig
from weft_export.families.paligemma import PaliGemmaConfig, PatchSightConfig
from weft_export.families.siglip import SiglipSizes


@dataclass(frozen=True)
class _Decoder:
    """What reads a decoder's sizes, and what its class takes where text_config says nothing."""

    sizes: Callable[[HfCheckpoint], DecoderOnlyConfig]
    hidden_size: int
    num_hidden_layers: int
    num_attention_heads: int
    vocab_size: int = 256_000


_DECODERS = {
    "gemma": _Decoder(gemma.sizes, 3072, 28, 16),
    "gemma2": _Decoder(gemma.capped_sizes, 2304, 26, 8),
}


def sizes(hf: HfCheckpoint) -> PaliGemmaConfig:
    """Two objects of config.json describe the two sides."""
    fields = hf.fields
    # The token of a picture is read beside the tokenizer. The others say again what the two sides say, or of training.
    fields.skip("image_token_index", "image_token_id", "vocab_size", "hidden_size", "projection_dim", "ignore_index")
    text, vision = parts_of(fields)
    tower = tower_of(hf, vision)
    sight = PatchSightConfig(**{field.name: getattr(tower, field.name) for field in fields_of(SiglipSizes)})
    image = read_picture_spec(hf, sight.channels)
    image.grid_rows, image.grid_columns = sight.grid
    kind = text.among("model_type", {name: name for name in _DECODERS}, "gemma")
    # Where its own class would read both ways, this one says what is read so.
    text.skip("use_bidirectional_attention", "num_image_tokens")
    for field in fields_of(_Decoder)[1:]:
        text.take_for_granted(field.name, getattr(_DECODERS[kind], field.name))
    decoder = _DECODERS[kind].sizes(replace(with_room(hf, text, image, kind), fields=text))
    return PaliGemmaConfig(**sizes_of(hf, decoder), sight=sight)


def names(config: PaliGemmaConfig) -> Names:
    """The decoder's names behind one prefix, and SigLIP's behind another."""
    decoder = gemma.sandwich_names if config.style.residual == "sandwich" else gemma.names
    return {
        **layer_names(decoder(config), "", "language_model."),
        **both("projector", "multi_modal_projector.linear"),
        **behind_tower(encoder_names("")),
    }


PALIGEMMA: Converter = replace(
    GEMMA3,
    model_type="paligemma",
    architectures=("PaliGemmaForConditionalGeneration",),
    family="paligemma",
    sizes=sizes,
    names=names,
)
CONVERTERS = (PALIGEMMA,)
