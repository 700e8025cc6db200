"""What the class in a config.json takes of the options, by its name: said before torch is imported.

The converters have the last word. A test holds this table to what they say.
"""

import re
from collections.abc import Mapping
from typing import Any

from weft_export.converters.registry import MODULE_OF, hint_for
from weft_export.errors import CheckpointError
from weft_export.options import ExportOptions, flag_of, too_long
from weft_proto.paging import MAX_HEAD_DIM

_BODY_OF = re.compile(r"(?P<body>.*)ForMaskedLM|(?P<decoder>Llama|Mistral|Qwen2|Qwen3)ForCausalLM")
"""Which classes become an embedder where one is asked for: then they are read as their body."""
_BODIES = r"(?!MarianMT|VisionEncoderDecoder|GPT2LMHead|CLIPModel|Siglip).*Model|CLIPTextModelWithProjection"
_DECODERS = r"(?!Git).*ForCausalLM|GPT2LMHeadModel"
_MIXTURES = r"Mixtral|Qwen3Moe|Olmoe|GraniteMoe|GptOss|Qwen3VLMoe"
_HYBRIDS = r"Lfm2|GraniteMoeHybrid|Mamba|FalconMamba|RWKV7"
_CTC = r".*ForCTC"
_OF_PICTURES = r".*ForImageClassification.*|CLIPVision.*|SiglipVisionModel|ViTModel|Dinov2(WithRegisters)?Model"
_BOTH_WAYS = r"Gemma3ForConditional|PaliGemma"
_PAGES = "DonutOfPages"
_WITHOUT_ADAPTERS = rf"{_PAGES}|Moonshine|LED|ConvNext|ResNet|Swin|CLIPModel|SiglipModel"
_IN_ENCODERS = r"Florence2|Blip2OfT5"
"""Their encoders read pictures and questions."""
_ASKED = rf"GitForCausalLM|{_PAGES}|Blip2OfT5"
_SEEING = rf"Blip2For|Llava|Idefics3|SmolVLM|Qwen2VL|Qwen2_5_VL|Qwen3VL|{_BOTH_WAYS}"
_TAKEN_BY = {
    "precision fp16": rf"(?!{_MIXTURES}|{_HYBRIDS}|{_BOTH_WAYS}).*",
    "precision bf16": rf"(?!Florence2|Whisper|Moonshine|{_CTC}|ConvNext|ResNet|{_MIXTURES}|{_HYBRIDS}|{_BOTH_WAYS}).*",
    "mixed_runs": rf"(?!{_HYBRIDS}|HunYuan)({_DECODERS})",
    "paged": rf"(?!Bloom|{_HYBRIDS}|HunYuan|GptOss)({_DECODERS})",
    "adapters": rf"(?!{_IN_ENCODERS}|{_WITHOUT_ADAPTERS}|{_CTC}|{_HYBRIDS}).*",
    "labels": r"CLIPModel",
    "max_tokens": rf"(?!{_OF_PICTURES}|{_CTC}).*",
    "max_source_tokens": rf"{_ASKED}|MarianMT.*|(?!Whisper|Moonshine|Blip|{_SEEING}).*ForConditionalGeneration",
    "max_pixels": r"Qwen2VL.*|Qwen2_5_VL.*|Qwen3VL.*",
    "label_text": r"CLIPModel|SiglipModel",
    "pairs": r".*ForSequenceClassification",
    "pooling": rf"SiglipTextModel|{_BODIES}",
    "truncate": rf".*For(Sequence|Token)Classification|SiglipTextModel|HF_ColBERT|(?!ViT|Dinov2)({_BODIES})",
}
"""Which classes take an option."""
_LABELLED = "CLIPForImageClassification"
"""What a CLIPModel is for all other options where its labels are chosen."""
PICTURE, _RECORDING = "a picture (PNG, JPEG or WebP)", "a recording (WAV)"
_FILES = {
    rf"Whisper.*|Moonshine.*|{_CTC}": _RECORDING,
    rf"BlipFor.*|VisionEncoderDecoder.*|CLIPModel|SiglipModel|{_OF_PICTURES}": PICTURE,
}
"""Which classes answer to a file, and what is in it."""
_TEXT_PLACES = "max_position_embeddings"
_PLACES = {
    "gpt2": ("n_positions", 1024, 0),
    "gpt_bigcode": ("n_positions", 1024, 0),
    "gptj": ("n_positions", 2048, 0),
    "codegen": ("n_positions", 2048, 0),
    "gpt_neo": (_TEXT_PLACES, 2048, 0),
    "whisper": ("max_target_positions", 448, 0),
    "trocr": (_TEXT_PLACES, 512, 0),
    "blip_text_model": (_TEXT_PLACES, 512, 0),
    "clip_text_model": (_TEXT_PLACES, 77, 0),
    "modernbert": (_TEXT_PLACES, 8192, 0),
    "nomic_bert": (_TEXT_PLACES, 2048, 0),
    "gte": (_TEXT_PLACES, 8192, 0),
    "opt": (_TEXT_PLACES, 2048, 0),
    "git": (_TEXT_PLACES, 1024, 0),
    **dict.fromkeys(("roberta", "xlm-roberta", "camembert", "mpnet"), (_TEXT_PLACES, 512, 2)),
    **dict.fromkeys(("bert", "distilbert", "electra", "albert", "deberta-v2"), (_TEXT_PLACES, 512, 0)),
    **dict.fromkeys(("marian", "bart", "mbart", "m2m_100", "pegasus"), (_TEXT_PLACES, 1024, 0)),
}
"""Of each model_type with a weight for each place of a text: the field with their number, how many there are without
it, and how many stay empty."""
_WRITTEN_BY = {
    "vision-encoder-decoder": ("decoder", None),
    "blip": ("text_config", "blip_text_model"),
    "blip-2": ("text_config", "opt"),
    "florence2": ("text_config", "bart"),
}
"""Of each model_type whose texts are another's: the part of its config, and the model_type there. None: it says so."""


def check_class(config: Mapping[str, Any], options: ExportOptions, *, embeds: bool) -> None:
    """Raise CheckpointError for a model_type that is not read, or an option that its class does not take.

    config: of a Hugging Face directory. What is no name there, the reading of it refuses.
    embeds: whether a class that writes or fills masks is to be an embedder.
    """
    model_type, named = config.get("model_type"), config.get("architectures")
    if isinstance(model_type, str) and model_type not in MODULE_OF and (hint := hint_for(model_type)):
        raise CheckpointError(f"the model_type {model_type!r:.80} is not supported; {hint}")
    if not isinstance(named, list) or not named or not isinstance(named[0], str):
        return
    name = named[0]
    body = _BODY_OF.fullmatch(name) if embeds else None
    read_as = _called(name, config) if body is None else f"{body['body'] or body['decoder']}Model"
    for option, classes in _TAKEN_BY.items():
        is_labelled = name == "CLIPModel" and options.labels is not None and not option.startswith("label")
        taken_as = _LABELLED if is_labelled else read_as
        if _is_asked(option, options) and not re.fullmatch(classes, taken_as):
            raise CheckpointError(f"{flag_of(option)} is not for {name}")
    if options.held_out is not None and _is_unscored(name, config, options):
        raise CheckpointError(f"{flag_of('held_out')} is not for {name} as it is here: nothing scores its answers")
    if options.paged and config.get("alibi") is True:
        raise CheckpointError(f"{flag_of('paged')} is not for {name} with alibi: no kernel adds a bias there")
    if options.paged and _head_dim(config) > MAX_HEAD_DIM:
        raise CheckpointError(
            f"{flag_of('paged')} is not for heads of over {MAX_HEAD_DIM} numbers: no kernel reads them"
        )


def _called(name: str, config: Mapping[str, Any]) -> str:
    """Return a class as the tables above have it: a BLIP-2 with T5 is not as one with OPT, nor a Donut as a TrOCR."""
    encoder = config.get("encoder")
    if isinstance(encoder, dict) and encoder.get("model_type") == "donut-swin":
        return _PAGES
    types = config.get("layers_block_type", config.get("layer_types"))
    if name == "GraniteMoeHybridForCausalLM" and isinstance(types, list) and types:
        # Where all layers attend it is no hybrid.
        attending = all(each in ("attention", "full_attention") for each in types)
        dense = config.get("num_local_experts", 8) == 0
        return name if not attending else "GraniteForCausalLM" if dense else "GraniteMoeForCausalLM"
    text = config.get("text_config")
    is_t5 = name.startswith("Blip2For") and isinstance(text, dict) and text.get("model_type") == "t5"
    return "Blip2OfT5" if is_t5 else name


def _head_dim(config: Mapping[str, Any]) -> int:
    """Return how many numbers a head of a decoder has. 0: this does not say it as most do."""
    match config:
        case {"head_dim": int(head_dim)}:
            return head_dim
        case {"model_type": "gemma" | "gemma2" | "gemma3_text"}:
            return 0  # its class has a size of its own
        case {"hidden_size": int(size), "num_attention_heads": int(heads)} if heads > 0:
            return size // heads
    return 0


def _is_asked(option: str, options: ExportOptions) -> bool:
    field, _, value = option.partition(" ")
    return getattr(options, field) == value if value else bool(getattr(options, field))


def _is_unscored(name: str, config: Mapping[str, Any], options: ExportOptions) -> bool:
    """Whether answers are no answer of several: how near each label of a request is, or values."""
    if name in ("CLIPModel", "SiglipModel"):
        return options.labels is None
    return name.endswith("ForCTC") or ("Classification" in name and config.get("problem_type") == "regression")


def check_length(config: Mapping[str, Any], options: ExportOptions) -> None:
    """Raise CheckpointError for a text that is longer than the model takes, by the model_type."""
    kind = config.get("model_type")
    if isinstance(kind, str) and kind in _WRITTEN_BY:
        part, named = _WRITTEN_BY[kind]
        config = inner if isinstance(inner := config.get(part), dict) else {}
        kind = None if config.get("model_type") == "t5" else named or config.get("model_type")
    if not isinstance(kind, str) or kind not in _PLACES:
        return
    field, default, empty = _PLACES[kind]
    places = config.get(field, default)
    for option, chosen in (("max_tokens", options.max_tokens), ("max_source_tokens", options.max_source_tokens)):
        if chosen is not None and isinstance(places, int) and chosen > places - empty:
            raise too_long(option, chosen, places - empty)


def takes_file(config: Mapping[str, Any]) -> str:
    """Return what the file of a golden request holds; nothing for a class that answers to texts, or to neither."""
    named = config.get("architectures")
    name = named[0] if isinstance(named, list) and named and isinstance(named[0], str) else ""
    return next((what for classes, what in _FILES.items() if re.fullmatch(classes, _called(name, config))), "")
