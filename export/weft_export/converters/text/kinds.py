"""Which class of tokenizers a directory means: its own word for it, or what is usual for the model."""

import json
from collections.abc import Mapping
from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from weft_export.converters.text.kind import TokenizerKind

AS_IT_IS = "TokenizersBackend"
"""The class of a tokenizer that is what its tokenizer.json says, and nothing else."""
MARIAN, M2M_100 = "MarianTokenizer", "M2M100Tokenizer"
WHISPER = "WhisperTokenizer"

# The classes that transformers 5 makes anew of their pieces, whatever else tokenizer.json says.
# Of each the module in this folder, and its kind there. The module is imported when a directory means the class.
_KINDS: Mapping[str, tuple[str, str]] = {
    "AlbertTokenizer": ("unigram", "ALBERT"),
    "BartTokenizer": ("byte_level", "ROBERTA"),
    "BertTokenizer": ("words", "BERT"),
    "ByT5Tokenizer": ("raw_bytes", "BYT5"),
    "CamembertTokenizer": ("unigram", "CAMEMBERT"),
    "DebertaV2Tokenizer": ("unigram", "DEBERTA"),
    "DistilBertTokenizer": ("words", "BERT"),
    "ElectraTokenizer": ("words", "BERT"),
    "GPT2Tokenizer": ("byte_level", "GPT2"),
    "GPTNeoXTokenizer": ("byte_level", "NEOX"),
    "GemmaTokenizer": ("pieces", "GEMMA"),
    "LEDTokenizer": ("byte_level", "ROBERTA"),
    "LlamaTokenizer": ("pieces", "LLAMA"),
    "MBart50Tokenizer": ("unigram", "MBART50_KIND"),
    "MBartTokenizer": ("unigram", "MBART_KIND"),
    "MPNetTokenizer": ("words", "MPNET"),
    "NllbTokenizer": ("pieces", "NLLB"),
    "PegasusTokenizer": ("unigram", "PEGASUS"),
    "Qwen2Tokenizer": ("byte_level", "QWEN2"),
    "RobertaTokenizer": ("byte_level", "ROBERTA"),
    "Siglip2Tokenizer": ("pieces", "SIGLIP2"),
    "SiglipTokenizer": ("canonical", "SIGLIP"),
    "T5Tokenizer": ("unigram", "T5"),
    WHISPER: ("byte_level", "WHISPER"),
    "XLMRobertaTokenizer": ("unigram", "XLMR"),
}

SEGMENTED = frozenset({"BertTokenizer", "DebertaV2Tokenizer", "ElectraTokenizer"})
"""The classes that number two texts as segments unless model_input_names says otherwise."""

FILLED_LEFT = frozenset({"GemmaTokenizer", "Siglip2Tokenizer"})
"""The classes that fill up texts on the left unless padding_side says otherwise."""

# What is usual for a model_type. Where a directory names another class, that one goes, with two exceptions:
# a type that usually is AS_IT_IS always is, and directories of _WRONGLY_NAMED ones often name a class not theirs.
_USUAL = {
    "albert": "AlbertTokenizer",
    "bart": "RobertaTokenizer",
    "bert": "BertTokenizer",
    "blip": "BertTokenizer",
    "blip-2": "GPT2Tokenizer",
    "camembert": "CamembertTokenizer",
    "codegen": "GPT2Tokenizer",
    "deberta-v2": "DebertaV2Tokenizer",
    "distilbert": "BertTokenizer",
    "electra": "BertTokenizer",
    "ernie4_5": AS_IT_IS,
    "florence2": "BartTokenizer",
    "gemma": "GemmaTokenizer",
    "gemma2": "GemmaTokenizer",
    "gemma3": "GemmaTokenizer",
    "gemma3_text": "GemmaTokenizer",
    "git": "BertTokenizer",
    "glm": AS_IT_IS,
    "glm4": AS_IT_IS,
    "gpt2": "GPT2Tokenizer",
    "gpt_bigcode": AS_IT_IS,
    "gpt_neo": "GPT2Tokenizer",
    "gpt_neox": "GPTNeoXTokenizer",
    "gptj": "GPT2Tokenizer",
    "granite": AS_IT_IS,
    "granitemoe": AS_IT_IS,
    "gte": "XLMRobertaTokenizer",
    "jais2": "GPT2Tokenizer",
    "led": "LEDTokenizer",
    "llava": AS_IT_IS,
    "m2m_100": M2M_100,
    "falcon_mamba": "GPTNeoXTokenizer",
    "mamba": "GPTNeoXTokenizer",
    "mamba2": "GPTNeoXTokenizer",
    "marian": MARIAN,
    "mbart": "MBartTokenizer",
    "ministral": AS_IT_IS,
    "mistral": AS_IT_IS,
    "mixtral": AS_IT_IS,
    "modernbert": AS_IT_IS,
    "mpnet": "MPNetTokenizer",
    "mt5": "T5Tokenizer",
    "nemotron": AS_IT_IS,
    "nomic_bert": "BertTokenizer",
    "olmo": "GPTNeoXTokenizer",
    "olmo2": AS_IT_IS,
    "olmo3": AS_IT_IS,
    "olmoe": "GPTNeoXTokenizer",
    "opt": "GPT2Tokenizer",
    "paligemma": "GemmaTokenizer",
    "pegasus": "PegasusTokenizer",
    "phi": "GPT2Tokenizer",
    "phi3": AS_IT_IS,
    "qwen2": "Qwen2Tokenizer",
    "qwen2_5_vl": "Qwen2Tokenizer",
    "qwen2_vl": "Qwen2Tokenizer",
    "qwen3": "Qwen2Tokenizer",
    "qwen3_vl": "Qwen2Tokenizer",
    "qwen3_vl_moe": "Qwen2Tokenizer",
    "qwen3_moe": "Qwen2Tokenizer",
    "roberta": "RobertaTokenizer",
    "siglip": "SiglipTokenizer",
    "siglip_text_model": "SiglipTokenizer",
    "smolvlm": AS_IT_IS,
    "stablelm": AS_IT_IS,
    "starcoder2": "GPT2Tokenizer",
    "t5": "T5Tokenizer",
    "trocr": "XLMRobertaTokenizer",
    "umt5": AS_IT_IS,
    "whisper": WHISPER,
    "xlm-roberta": "XLMRobertaTokenizer",
}
_WRONGLY_NAMED = {"modernbert", "phi3", "qwen2"}


def class_of(config: Mapping[str, Any], options: Mapping[str, Any], content: Mapping[str, Any] | None) -> str:
    """Return the name of the class that transformers 5 takes: one that kind_of knows, MARIAN, M2M_100, or AS_IT_IS.

    Args:
        config: config.json.
        options: tokenizer_config.json.
        content: tokenizer.json, or None.
    """
    model_type = config.get("model_type")
    usual = _USUAL.get(str(model_type))
    said = options.get("tokenizer_class")
    named = str(said or config.get("tokenizer_class") or "").removesuffix("Fast")
    if not named:
        # An empty name is one that no class has.
        return AS_IT_IS if said == "" else _known(usual or AS_IT_IS)
    if named == "LlamaTokenizer" and model_type not in _WRONGLY_NAMED and _is_byte_level(content):
        return AS_IT_IS
    if usual == AS_IT_IS:
        return AS_IT_IS
    return _known(usual if usual and model_type in _WRONGLY_NAMED else named)


def kind_of(name: str) -> "TokenizerKind | None":
    """Return what a class does with its pieces; None for a class that is not made anew of them."""
    if name not in _KINDS:
        return None
    module, constant = _KINDS[name]
    kind: TokenizerKind = getattr(import_module(f"weft_export.converters.text.{module}"), constant)
    return kind


def _known(name: str) -> str:
    return name if name in _KINDS or name in {MARIAN, M2M_100} else AS_IT_IS


def _is_byte_level(content: Mapping[str, Any] | None) -> bool:
    """Whether a tokenizer.json makes its pieces of bytes. Then it is no Llama 2's, whatever the directory says."""
    return '"ByteLevel"' in json.dumps({key: part for key, part in (content or {}).items() if key != "model"})
