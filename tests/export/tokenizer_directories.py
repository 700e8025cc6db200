"""Tokenizer files as Hugging Face directories have them, with small vocabularies trained here. And hard texts."""

import json
import random
import sys
import warnings
from functools import cache
from io import BytesIO
from pathlib import Path

import sentencepiece
import tokenizers
import transformers
from tokenizers import decoders, models, pre_tokenizers, trainers

from weft_export.converters.text.two_files import M2M_100

HERE = Path(__file__).parent


@cache
def hard_texts():
    """The lines of hard_texts.txt. Escapes stand for characters that an editor would lose."""
    lines = (HERE / "hard_texts.txt").read_text(encoding="utf-8").removesuffix("\n").split("\n")
    return [line.encode("latin-1", "backslashreplace").decode("unicode_escape") for line in lines]


@cache
def corpus():
    """What vocabularies are trained on: every second hard text, and sentences of the words of them all."""
    texts = [text for text in hard_texts() if "\0" not in text]
    words = [word for text in texts for word in text.split()]
    draw = random.Random(0)
    sentences = [" ".join(draw.choices(words, k=8)) for _ in range(600)]
    return (*texts[::2], *sentences)


@cache
def spm(kind="unigram", rules="nmt_nfkc", size=1200, **options):
    """A SentencePiece model: its file."""
    file = BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(corpus()),
        model_writer=file,
        vocab_size=size,
        model_type=kind,
        normalization_rule_name=rules,
        num_threads=1,
        minloglevel=2,
        **options,
    )
    return file.getvalue()


@cache
def byte_level():
    """A byte-level BPE as GPT-2 has: its tokenizers JSON."""
    tokenizer = tokenizers.Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    special = ["<s>", "<pad>", "</s>", "<unk>", "<|endoftext|>"]
    trainer = trainers.BpeTrainer(
        vocab_size=900, initial_alphabet=alphabet, special_tokens=special, show_progress=False
    )
    tokenizer.train_from_iterator(corpus(), trainer)
    return tokenizer.to_str()


@cache
def word_piece():
    """The lines of a vocab.txt as BERT has."""
    tokenizer = tokenizers.Tokenizer(models.WordPiece(unk_token="[UNK]"))
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    special = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "<s>", "</s>", "<pad>"]
    trainer = trainers.WordPieceTrainer(vocab_size=1200, special_tokens=special, show_progress=False)
    lower = [text.lower() for text in corpus()]
    tokenizer.train_from_iterator((*corpus(), *lower), trainer)
    vocab = tokenizer.get_vocab()
    return sorted(vocab, key=vocab.get)


def write(directory, model_type, tokenizer_config=None, files=None, **config):
    """Write a directory: config.json, perhaps tokenizer_config.json, and the files given (objects become JSON)."""
    directory.mkdir(parents=True, exist_ok=True)
    files = {"config.json": {"model_type": model_type, **config}} | (files or {})
    if tokenizer_config is not None:
        files["tokenizer_config.json"] = tokenizer_config
    for name, content in files.items():
        text = json.dumps(content) if isinstance(content, dict | list) else content
        (directory / name).write_bytes(text if isinstance(text, bytes) else text.encode())
    return directory


def merges_files():
    """GPT-2's two files."""
    model = json.loads(byte_level())["model"]
    merges = "".join(f"{left} {right}\n" for left, right in model["merges"])
    return {"vocab.json": model["vocab"], "merges.txt": "#version: 0.2\n" + merges}


T5_IDS = {"pad_id": 0, "eos_id": 1, "unk_id": 2, "bos_id": -1}
PLAIN = {"add_dummy_prefix": True, "remove_extra_whitespaces": False, "byte_fallback": True}
ALBERT_IDS = {
    "pad_id": 0, "unk_id": 1, "bos_id": -1, "eos_id": -1, "control_symbols": "[CLS],[SEP],[MASK]"
}  # fmt: skip
DEBERTA_IDS = {
    "pad_id": 0, "bos_id": 1, "eos_id": 2, "unk_id": 3,
    "pad_piece": "[PAD]", "bos_piece": "[CLS]", "eos_piece": "[SEP]", "unk_piece": "[UNK]",
}  # fmt: skip
GEMMA_IDS = {
    "pad_id": 0, "eos_id": 1, "bos_id": 2, "unk_id": 3, "bos_piece": "<bos>", "eos_piece": "<eos>",
    "add_dummy_prefix": False, "remove_extra_whitespaces": False, "byte_fallback": True,
    "user_defined_symbols": "<mask>,<start_of_turn>,<end_of_turn>",
}  # fmt: skip
LLAMA_CONFIG = {"tokenizer_class": "LlamaTokenizer", "add_bos_token": True, "add_eos_token": False}
NLLB_CODES = ["ace_Arab", "ace_Latn", "eng_Latn", "fra_Latn", "zho_Hans", "zho_Hant"]


def _pieces(model):
    """The pieces of a SentencePiece model that are not special, in its order."""
    processor = sentencepiece.SentencePieceProcessor(model_proto=model)
    ids = range(processor.get_piece_size())
    return [processor.id_to_piece(id_) for id_ in ids if not (processor.is_control(id_) or processor.is_unknown(id_))]


def marian_files(source, target, codes=(), without=()):
    """Marian's three files: one vocabulary of both sides' pieces, in an order of its own."""
    pieces = dict.fromkeys([*_pieces(source), *_pieces(target), *codes])
    order = ["</s>", "<unk>", *sorted(set(pieces) - {"</s>", "<unk>", *without}), "<pad>"]
    vocab = {piece: index for index, piece in enumerate(order)}
    return {"source.spm": source, "target.spm": target, "vocab.json": vocab}


def m2m_100_files(model):
    """M2M100's files. Its languages have the ids behind those of vocab.json."""
    order = ["<s>", "<pad>", "</s>", "<unk>", *_pieces(model)]
    return {
        "sentencepiece.bpe.model": model,
        "vocab.json": {piece: index for index, piece in enumerate(order)},
        "special_tokens_map.json": {"additional_special_tokens": [f"__{code}__" for code in M2M_100]},
    }


# Directories without a tokenizer.json: model_type, tokenizer_config.json, files.
OLDER = {
    "bert": lambda: ("bert", {"do_lower_case": True}, {"vocab.txt": "\n".join(word_piece()) + "\n"}),
    "bert-cased": lambda: ("bert", {"do_lower_case": False}, {"vocab.txt": "\n".join(word_piece()) + "\n"}),
    "distilbert": lambda: ("distilbert", None, {"vocab.txt": "\n".join(word_piece()) + "\n"}),
    "electra": lambda: (
        "electra",
        {"tokenizer_class": "ElectraTokenizer", "strip_accents": False},
        {"vocab.txt": "\n".join(word_piece()) + "\n"},
    ),
    "mpnet": lambda: ("mpnet", {"tokenizer_class": "MPNetTokenizer"}, {"vocab.txt": "\n".join(word_piece()) + "\n"}),
    "gpt2": lambda: ("gpt2", {"model_max_length": 1024}, merges_files()),
    "roberta": lambda: ("roberta", None, merges_files()),
    "bart": lambda: ("bart", {"tokenizer_class": "BartTokenizer"}, merges_files()),
    "opt": lambda: (
        "opt",
        {
            "add_bos_token": True,
            "bos_token": "</s>",
            "eos_token": "</s>",
            "unk_token": "</s>",
            "pad_token": "<pad>",
            "tokenizer_class": "GPT2Tokenizer",
        },
        merges_files(),
    ),
    "qwen2": lambda: (
        "qwen2",
        {
            "tokenizer_class": "Qwen2Tokenizer",
            "additional_special_tokens": ["<|im_start|>", "<|im_end|>"],
            "eos_token": "<|im_end|>",
        },
        merges_files(),
    ),
    "t5": lambda: ("t5", {"extra_ids": 100}, {"spiece.model": spm(**T5_IDS)}),
    "mt5": lambda: (
        "mt5",
        {"tokenizer_class": "T5Tokenizer", "extra_ids": 0},
        {"spiece.model": spm(byte_fallback=True, **T5_IDS)},
    ),
    "byt5": lambda: ("t5", {"tokenizer_class": "ByT5Tokenizer", "extra_ids": 125}, {}),
    "madlad": lambda: (
        "t5",
        {"tokenizer_class": "T5Tokenizer", "extra_ids": 0, "pad_token": "<s>"},
        {"spiece.model": spm(user_defined_symbols="<2de>,<2fr>", byte_fallback=True)},
    ),
    "siglip": lambda: ("siglip", {"tokenizer_class": "SiglipTokenizer"}, {"spiece.model": spm(**T5_IDS)}),
    "xlm-roberta": lambda: ("xlm-roberta", None, {"sentencepiece.bpe.model": spm()}),
    "camembert": lambda: ("camembert", None, {"sentencepiece.bpe.model": spm()}),
    "mbart": lambda: ("mbart", {"src_lang": "en_XX"}, {"sentencepiece.bpe.model": spm()}),
    "mbart50": lambda: (
        "mbart",
        {"tokenizer_class": "MBart50Tokenizer", "src_lang": "fr_XX", "tgt_lang": "en_XX"},
        {"sentencepiece.bpe.model": spm()},
    ),
    "albert": lambda: ("albert", None, {"spiece.model": spm(**ALBERT_IDS)}),
    "albert-cased": lambda: (
        "albert",
        {"do_lower_case": False, "keep_accents": True},
        {"spiece.model": spm(**ALBERT_IDS)},
    ),
    "deberta": lambda: ("deberta-v2", {"do_lower_case": False}, {"spm.model": spm(**DEBERTA_IDS)}),
    "deberta-punct": lambda: (
        "deberta-v2",
        {"do_lower_case": True, "split_by_punct": True},
        {"spm.model": spm(**DEBERTA_IDS)},
    ),
    "pegasus": lambda: (
        "pegasus",
        {"mask_token": "<mask_2>", "mask_token_sent": "<mask_1>"},
        {"spiece.model": spm(pad_id=0, eos_id=1, unk_id=2, bos_id=-1)},
    ),
    "llama": lambda: ("llama", LLAMA_CONFIG, {"tokenizer.model": spm("bpe", "identity", **PLAIN)}),
    "llama-legacy": lambda: (
        "llama",
        LLAMA_CONFIG | {"legacy": True, "add_eos_token": True},
        {"tokenizer.model": spm("bpe", "identity", **PLAIN)},
    ),
    "gemma": lambda: (
        "gemma",
        {"tokenizer_class": "GemmaTokenizer", "add_bos_token": True},
        {"tokenizer.model": spm("bpe", "identity", **GEMMA_IDS)},
    ),
    "marian": lambda: ("marian", {"source_lang": "en", "target_lang": "de"}, marian_files(spm(), spm(size=900))),
    "marian-codes": lambda: (
        "marian",
        {"source_lang": "eng", "target_lang": "ROMANCE"},
        marian_files(spm(size=900, character_coverage=0.98), spm(), codes=(">>fra<<", ">>spa<<", ">>pt_br<<")),
    ),
    "m2m_100": lambda: ("m2m_100", None, m2m_100_files(spm("bpe"))),
    "nllb": lambda: (
        "m2m_100",
        {"tokenizer_class": "NllbTokenizer", "additional_special_tokens": NLLB_CODES},
        {"sentencepiece.bpe.model": spm("bpe")},
    ),
}


def config_of(directory):
    """A directory's config.json."""
    return json.loads((directory / "config.json").read_text())


def reference(directory):
    """What transformers makes of a directory. Its generated code for SentencePiece must fit our protobuf."""
    from transformers.utils import sentencepiece_model_pb2_new

    # The one in sentencepiece itself asks for a newer protobuf, and transformers then makes no tokenizer at all.
    sys.modules["sentencepiece.sentencepiece_model_pb2"] = sentencepiece_model_pb2_new
    with warnings.catch_warnings():
        # Marian's class recommends a package that changes quotes and dashes. What it does is no part of a checkpoint.
        warnings.filterwarnings("ignore", "Recommended: pip install sacremoses")
        return transformers.AutoTokenizer.from_pretrained(directory)
