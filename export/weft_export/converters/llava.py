"""LLaVA 1.5 (Liu et al. 2024): CLIP's image encoder and a projector before Llama, Mistral or Qwen2."""

from collections.abc import Callable
from dataclasses import fields as fields_of
from dataclasses import replace
from typing import Any

from weft_export.converters.clip import encoder_names, tower_sizes
from weft_export.converters.converter import Converter, HfCheckpoint
from weft_export.converters.fields import ACTIVATIONS, Fields
from weft_export.converters.llama import llama_names, llama_sizes, mistral_sizes, qwen2_sizes
from weft_export.converters.sight import LONGEST
from weft_export.converters.sources import Names, both, layer_names
from weft_export.families.decoder_only import DecoderOnlyConfig
from weft_export.families.llava import LlavaConfig, SightConfig

_DECODERS: dict[str, Callable[[HfCheckpoint], DecoderOnlyConfig]] = {
    "llama": llama_sizes,
    "mistral": mistral_sizes,
    "qwen2": qwen2_sizes,
}
# What their classes take where text_config says nothing: files of transformers 4 have what differs alone.
_ABSENT = {"hidden_size": 4096, "num_attention_heads": 32, "num_hidden_layers": 32}
_WORDS = {"llama": 32000, "mistral": 32000, "qwen2": 151936}
_TOWER = "vision_tower."
# transformers writes what its files of version 4 have. In memory, and in what others save of it, the decoder stands
# beside what sees, below the head. In version 4, a tower's names have a prefix more.
SEEING = (
    (r"^model\.language_model\.", "language_model.model."),
    (r"^lm_head\.", "language_model.lm_head."),
    (r"^model\.(vision_tower|multi_modal_projector|image_newline)", r"\1"),
    (r"^vision_tower\.vision_model\.", _TOWER),
)


def sizes(hf: HfCheckpoint) -> LlavaConfig:
    """Two objects of config.json describe the two sides, and what is at its top how they are joined."""
    fields = hf.fields
    # The token of a picture is read beside the tokenizer. The others are no more read by transformers.
    fields.skip("image_token_index", "image_token_id", "image_seq_length", "ignore_index", "vocab_size")
    text, vision = parts_of(fields)
    return LlavaConfig(**decoder_sizes(hf, text, "llama"), sight=_sight(hf, vision))


def parts_of(fields: Fields) -> tuple[Fields, Fields]:
    """Return what config.json says of the decoder, and of what sees pictures. Raises CheckpointError without one."""
    for part in ("text_config", "vision_config"):
        if part not in fields:
            raise fields.wrong(part, "must be an object: it says what one side of the model is")
    return fields.part("text_config"), fields.part("vision_config")


def decoder_sizes(hf: HfCheckpoint, text: Fields, usual: str, *, says_tied: bool = True) -> dict[str, Any]:
    """Return the sizes of the decoder by the names of DecoderOnlyConfig.

    usual: its kind where nothing says it.
    says_tied: words are tied where its own part says so, as where the top of config.json does.
    """
    sizes = _decoder(hf, text, usual)
    tied = hf.fields.flag("tie_word_embeddings", default=False) or (says_tied and sizes.embeddings.tied)
    sizes = replace(sizes, embeddings=replace(sizes.embeddings, tied=tied))
    return {field.name: getattr(sizes, field.name) for field in fields_of(DecoderOnlyConfig)}


def _decoder(hf: HfCheckpoint, text: Fields, usual: str) -> DecoderOnlyConfig:
    kind = text.among("model_type", {name: name for name in _DECODERS}, usual)
    differing = {"vocab_size": _WORDS[kind], "max_position_embeddings": LONGEST[kind]}
    for name, value in {**_ABSENT, **differing}.items():
        text.take_for_granted(name, value)
    return _DECODERS[kind](replace(hf, fields=text))


def _sight(hf: HfCheckpoint, vision: Fields) -> SightConfig:
    fields = hf.fields
    vision.only("model_type", "clip_vision_model")
    vision.skip("projection_dim", "vocab_size")
    tower: dict[str, Any] = tower_sizes(hf, vision)
    return SightConfig(
        **tower,
        feature_layers=feature_layers(fields, tower["num_layers"], -2),
        class_token=fields.among("vision_feature_select_strategy", {"default": "", "full": "full"}, "default") != "",
        projector_activation=fields.among("projector_hidden_act", ACTIVATIONS, "gelu"),
        projector_bias=fields.flag("multimodal_projector_bias", default=True),
    )


def feature_layers(fields: Fields, num_layers: int, usual: int) -> tuple[int, ...]:
    """Return how many layers a picture passes before it is read. -1 is all of them, and -2 all but the last."""
    given = fields.raw("vision_feature_layer")
    listed = given if isinstance(given, list) else [usual if given is None else given]
    numbers = [each + (num_layers + 1) * (each < 0) for each in listed if type(each) is int]
    if not numbers or len(numbers) != len(listed) or not 1 <= min(numbers) <= max(numbers) <= num_layers:
        raise fields.wrong("vision_feature_layer", f"must be of 1 to {num_layers}, or -1 to -{num_layers}")
    return tuple(numbers)


def names(config: LlavaConfig) -> Names:
    """Llama's names behind one prefix, and CLIP's behind another."""
    return {**joined_names(config), **behind_tower(encoder_names(""))}


def joined_names(config: DecoderOnlyConfig) -> Names:
    """Those of the decoder and of the projector."""
    return {
        **layer_names(llama_names(config), "", "language_model."),
        **both("projector.linear_1", "multi_modal_projector.linear_1"),
        **both("projector.linear_2", "multi_modal_projector.linear_2"),
    }


def behind_tower(table: Names) -> Names:
    """Return the names of what sees, behind its prefix."""
    return layer_names(table, "tower.", _TOWER)


LLAVA = Converter(
    model_type="llava",
    architectures=("LlavaForConditionalGeneration",),
    family="llava",
    sizes=sizes,
    names=names,
    spellings=SEEING,
    ignored=(
        # It norms the class token for those who compare it.
        r"vision_tower\.post_layernorm\..*",
        r".*\.position_ids",
        r".*\.rotary_emb\.inv_freq",
    ),
    bias="embeddings.bias",
    nested="text_config",
)
CONVERTERS = (LLAVA,)
