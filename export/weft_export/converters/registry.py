"""All kinds of checkpoints of others that become ours. The module of a kind is imported when a config.json names it."""

from __future__ import annotations

import difflib
from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

    from weft_export.converters.converter import Converter

# Of each model_type the module in this folder, whose CONVERTERS have all of its classes.
# To who has another class, the first model_type that does the same is named.
MODULE_OF = {
    "llama": "llama",
    "gpt2": "gpt2",
    "mistral": "llama",
    "qwen2": "llama",
    "qwen3": "llama",
    "gemma": "gemma",
    "gemma2": "gemma",
    "gemma3_text": "gemma",
    "phi": "phi",
    "phi3": "phi",
    "smollm3": "llama",
    "stablelm": "llama",
    "gpt_neox": "gpt_neox",
    "opt": "opt",
    "bloom": "bloom",
    "falcon": "falcon",
    "starcoder2": "llama",
    "olmo": "olmo",
    "olmo2": "olmo",
    "olmo3": "olmo",
    "granite": "granite",
    "cohere": "cohere",
    "cohere2": "cohere",
    "glm": "glm",
    "glm4": "glm",
    "ministral": "llama",
    "exaone4": "exaone",
    "helium": "neighbours",
    "nemotron": "nemotron",
    "ernie4_5": "neighbours",
    "arcee": "nemotron",
    "seed_oss": "llama",
    "jais2": "jais2",
    "cwm": "cwm",
    "gpt_bigcode": "gpt2",
    "gpt_neo": "gpt_neo",
    "gptj": "gptj",
    "codegen": "gptj",
    "lfm2": "lfm2",
    "granitemoehybrid": "granite_hybrid",
    "hunyuan_v1_dense": "hunyuan",
    "mamba": "mamba",
    "falcon_mamba": "mamba",
    "mamba2": "mamba2",
    "rwkv7": "rwkv7",
    "mixtral": "mixtures",
    "qwen3_moe": "mixtures",
    "olmoe": "mixtures",
    "granitemoe": "mixtures",
    "gpt_oss": "gpt_oss",
    "marian": "bart",
    "bart": "bart",
    "mbart": "bart",
    "m2m_100": "bart",
    "pegasus": "bart",
    "led": "led",
    "t5": "t5",
    "mt5": "t5",
    "umt5": "t5",
    "vision-encoder-decoder": "vision_encoder_decoder",
    "whisper": "whisper",
    "moonshine": "moonshine",
    "wav2vec2": "wav2vec2",
    "hubert": "wav2vec2",
    "parakeet_ctc": "parakeet",
    "blip": "blip",
    "blip-2": "blip2",
    "florence2": "florence2",
    "git": "git",
    "idefics3": "idefics3",
    "smolvlm": "idefics3",
    "gemma3": "gemma3",
    "paligemma": "paligemma",
    "llava": "llava",
    "llava_onevision": "llava_onevision",
    "qwen2_vl": "qwen_vl",
    "qwen2_5_vl": "qwen_vl",
    "qwen3_vl": "qwen3_vl",
    "qwen3_vl_moe": "qwen3_vl_moe",
    "vit": "vit",
    "deit": "vit",
    "beit": "beit",
    "swin": "swin",
    "swinv2": "swin",
    "convnext": "convnext",
    "resnet": "resnet",
    "clip": "clip",
    "clip_vision_model": "clip",
    "clip_text_model": "clip",
    "siglip": "siglip",
    "siglip_vision_model": "siglip",
    "siglip_text_model": "siglip",
    "dinov2": "dinov2",
    "dinov2_with_registers": "dinov2",
    "bert": "bert",
    "roberta": "bert",
    "xlm-roberta": "bert",
    "camembert": "bert",
    "distilbert": "bert",
    "electra": "bert",
    "albert": "bert",
    "mpnet": "bert",
    "modernbert": "modernbert",
    "deberta-v2": "deberta",
    "nomic_bert": "nomic",
    "gte": "gte",
}


# Why a model_type is not read that somebody may well have, and what to take instead.
_REASONS = {
    "new": "its class NewModel is code of its authors, which is never run; transformers has it as GteModel: take a"
    " directory of that, whose model_type is 'gte'",
    "instructblip": "its Q-Former reads the question too, which nobody has done yet; 'blip-2' is read",
    **dict.fromkeys(
        ("gemma3n", "gemma3n_text"),
        "each token has four vectors in every layer and a row of a table for each of them, and the last layers read the"
        " keys of others, which nobody has done yet; 'gemma3_text' is read",
    ),
    "siglip2": "its pictures are of many sizes, which nobody has done yet for it; one of a single size is a 'siglip'",
    "internvl": "it reads a picture in the grid of tiles whose shape is nearest, which nobody has done yet",
    **dict.fromkeys(
        ("mistral3", "pixtral"),
        "tokens stand between the rows of a picture in a prompt, which nobody has done yet; the decoder alone is read:"
        " 'mistral'",
    ),
    "nvembed": "its class NVEmbedModel is code of its authors, which is never run",
    **dict.fromkeys(
        ("parakeet_rnnt", "parakeet_tdt"),
        "it is a transducer, which nobody has done yet; a Parakeet with CTC is read: 'parakeet_ctc'",
    ),
}


def converters_of(model_type: str) -> tuple[Converter, ...]:
    """Return those of a model_type, none for one that is not supported."""
    if model_type not in MODULE_OF:
        return ()
    module = import_module(f"weft_export.converters.{MODULE_OF[model_type]}")
    return tuple(each for each in module.CONVERTERS if each.model_type == model_type)


def all_converters() -> Iterator[Converter]:
    """Yield all. This imports every module."""
    for model_type in MODULE_OF:
        yield from converters_of(model_type)


def hint_for(model_type: str) -> str:
    """Return why a model_type is not read, or which is and is nearest to it; nothing if none is near."""
    nearest = nearest_to(model_type)
    return _REASONS.get(model_type) or (f"the nearest is {nearest!r}" if nearest else "")


def nearest_to(model_type: str) -> str:
    """Return the model_type that is read and is nearest to another; nothing if none is near."""
    return next(iter(difflib.get_close_matches(model_type, sorted(MODULE_OF), n=1, cutoff=0.5)), "")
