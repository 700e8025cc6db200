"""Which class of tokenizers a directory means: its own word for it, or what is usual for the model."""

import json
from collections.abc import Mapping
from typing import Any

from weft_export.converters.text.byte_level import GPT2, NEOX, QWEN2, ROBERTA
from weft_export.converters.text.kind import TokenizerKind
from weft_export.converters.text.pieces import GEMMA, LLAMA, NLLB
from weft_export.converters.text.unigram import ALBERT, CAMEMBERT, DEBERTA, MBART50_KIND, MBART_KIND, PEGASUS, T5, XLMR
from weft_export.converters.text.words import BERT, MPNET

AS_IT_IS = "TokenizersBackend"
"""The class of a tokenizer that is what its tokenizer.json says, and nothing else."""
MARIAN, M2M_100 = "MarianTokenizer", "M2M100Tokenizer"

# The classes that transformers 5 makes anew of their pieces, whatever else tokenizer.json says.
KINDS: Mapping[str, TokenizerKind] = {
    "AlbertTokenizer": ALBERT,
    "BartTokenizer": ROBERTA,
    "BertTokenizer": BERT,
    "CamembertTokenizer": CAMEMBERT,
    "DebertaV2Tokenizer": DEBERTA,
    "DistilBertTokenizer": BERT,
    "ElectraTokenizer": BERT,
    "GPT2Tokenizer": GPT2,
    "GPTNeoXTokenizer": NEOX,
    "GemmaTokenizer": GEMMA,
    "LEDTokenizer": ROBERTA,
    "LlamaTokenizer": LLAMA,
    "MBart50Tokenizer": MBART50_KIND,
    "MBartTokenizer": MBART_KIND,
    "MPNetTokenizer": MPNET,
    "NllbTokenizer": NLLB,
    "PegasusTokenizer": PEGASUS,
    "Qwen2Tokenizer": QWEN2,
    "RobertaTokenizer": ROBERTA,
    "T5Tokenizer": T5,
    "XLMRobertaTokenizer": XLMR,
}

SEGMENTED = frozenset({"BertTokenizer", "DebertaV2Tokenizer", "ElectraTokenizer"})
"""The classes that number two texts as segments unless model_input_names says otherwise."""

# What is usual for a model_type. Where a directory names another class, that one goes, with two exceptions:
# a type that usually is AS_IT_IS always is, and directories of _WRONGLY_NAMED ones often name a class not theirs.
_USUAL = {
    "albert": "AlbertTokenizer",
    "bart": "RobertaTokenizer",
    "bert": "BertTokenizer",
    "blip": "BertTokenizer",
    "camembert": "CamembertTokenizer",
    "deberta-v2": "DebertaV2Tokenizer",
    "distilbert": "BertTokenizer",
    "electra": "BertTokenizer",
    "gemma": "GemmaTokenizer",
    "gemma2": "GemmaTokenizer",
    "gemma3": "GemmaTokenizer",
    "gemma3_text": "GemmaTokenizer",
    "git": "BertTokenizer",
    "gpt2": "GPT2Tokenizer",
    "gpt_bigcode": AS_IT_IS,
    "gpt_neo": "GPT2Tokenizer",
    "gpt_neox": "GPTNeoXTokenizer",
    "gptj": "GPT2Tokenizer",
    "m2m_100": M2M_100,
    "marian": MARIAN,
    "mbart": "MBartTokenizer",
    "mistral": AS_IT_IS,
    "modernbert": AS_IT_IS,
    "mpnet": "MPNetTokenizer",
    "mt5": "T5Tokenizer",
    "opt": "GPT2Tokenizer",
    "pegasus": "PegasusTokenizer",
    "phi": "GPT2Tokenizer",
    "phi3": AS_IT_IS,
    "qwen2": "Qwen2Tokenizer",
    "qwen3": "Qwen2Tokenizer",
    "roberta": "RobertaTokenizer",
    "stablelm": AS_IT_IS,
    "starcoder2": "GPT2Tokenizer",
    "t5": "T5Tokenizer",
    "trocr": "XLMRobertaTokenizer",
    "umt5": AS_IT_IS,
    "whisper": "WhisperTokenizer",
    "xlm-roberta": "XLMRobertaTokenizer",
}
_WRONGLY_NAMED = {"modernbert", "phi3", "qwen2"}


def class_of(config: Mapping[str, Any], options: Mapping[str, Any], content: Mapping[str, Any] | None) -> str:
    """Return the name of the class that transformers 5 takes: one of KINDS, MARIAN, M2M_100, or AS_IT_IS.

    Args:
        config: config.json.
        options: tokenizer_config.json.
        content: tokenizer.json, or None.
    """
    model_type = config.get("model_type")
    usual = _USUAL.get(str(model_type))
    named = str(options.get("tokenizer_class") or config.get("tokenizer_class") or "").removesuffix("Fast")
    if not named:
        return _known(usual or AS_IT_IS)
    if named == "LlamaTokenizer" and model_type not in _WRONGLY_NAMED and _is_byte_level(content):
        return AS_IT_IS
    if usual == AS_IT_IS:
        return AS_IT_IS
    return _known(usual if usual and model_type in _WRONGLY_NAMED else named)


def _known(name: str) -> str:
    return name if name in KINDS or name in {MARIAN, M2M_100} else AS_IT_IS


def _is_byte_level(content: Mapping[str, Any] | None) -> bool:
    """Whether a tokenizer.json makes its pieces of bytes. Then it is no Llama 2's, whatever the directory says."""
    return '"ByteLevel"' in json.dumps({key: part for key, part in (content or {}).items() if key != "model"})
