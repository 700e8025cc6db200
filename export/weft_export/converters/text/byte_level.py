"""Byte-level BPE (Radford et al., 2019): the tokenizers of GPT-2 and its kin."""

from tokenizers import Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers
from tokenizers.pre_tokenizers import PreTokenizer
from tokenizers.processors import PostProcessor, RobertaProcessing, TemplateProcessing

from weft_export.converters.text.kind import TokenizerKind, frame_token
from weft_export.converters.text.settings import Names, TokenizerSettings
from weft_export.converters.text.vocabulary import Vocabulary

# How Qwen cuts a text into words, as its own tokenizer.json states it.
_QWEN_WORDS = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*"
    r"|\s*[\r\n]+|\s+(?!\S)|\s+"
)


def _assemble(vocabulary: Vocabulary, settings: TokenizerSettings, _names: Names) -> Tokenizer:
    merges = models.BPE(
        dict(vocabulary.ids), vocabulary.merges, continuing_subword_prefix="", end_of_word_suffix="", fuse_unk=False
    )
    tokenizer = Tokenizer(merges)
    prefix = settings.flag("add_prefix_space", default=False)
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=prefix)
    tokenizer.decoder = decoders.ByteLevel()
    return tokenizer


def _assemble_neox(vocabulary: Vocabulary, settings: TokenizerSettings, names: Names) -> Tokenizer:
    tokenizer = _assemble(vocabulary, settings, names)
    tokenizer.normalizer = normalizers.NFC()
    return tokenizer


def _assemble_qwen(vocabulary: Vocabulary, settings: TokenizerSettings, names: Names) -> Tokenizer:
    tokenizer = _assemble_neox(vocabulary, settings, names)
    prefix = settings.flag("add_prefix_space", default=False)
    tokenizer.pre_tokenizer = cut_by(Regex(_QWEN_WORDS), prefix=prefix)
    return tokenizer


def cut_as_qwen() -> PreTokenizer:
    """Return what cuts a text into words as Qwen does."""
    return cut_by(Regex(_QWEN_WORDS))


def cut_by(words: Regex, *, prefix: bool = False) -> PreTokenizer:
    """Return what cuts a text into words, and each of them into bytes. prefix: a space comes before the first."""
    split = pre_tokenizers.Split(words, behavior="isolated", invert=False)
    return pre_tokenizers.Sequence([split, pre_tokenizers.ByteLevel(add_prefix_space=prefix, use_regex=False)])


def _frame_roberta(tokenizer: Tokenizer, _: Vocabulary, settings: TokenizerSettings, names: Names) -> PostProcessor:
    texts = (frame_token(settings, names, name) for name in ("sep_token", "cls_token"))
    sep, cls = ((text, tokenizer.token_to_id(text) or 0) for text in texts)
    prefix = settings.flag("add_prefix_space", default=False)
    return RobertaProcessing(sep, cls, settings.flag("trim_offsets", default=True), prefix)


def _frame_neox(tokenizer: Tokenizer, _: Vocabulary, settings: TokenizerSettings, names: Names) -> PostProcessor:
    """What the options say, and nothing where there is a tokenizer.json: transformers does not ask it."""
    if settings.has_json:
        return TemplateProcessing(single="$A", special_tokens=[])
    return bos_and_eos(tokenizer, settings, names)


def bos_and_eos(tokenizer: Tokenizer, settings: TokenizerSettings, names: Names) -> PostProcessor:
    """Return the post-processor for the options add_bos_token and add_eos_token."""
    bos, eos = (
        # Where a model has no such token, none is added.
        frame_token(settings, names, name)
        if settings.flag(f"add_{name}", default=False) and names.get(name) is not None
        else ""
        for name in ("bos_token", "eos_token")
    )
    return TemplateProcessing(
        single=[part for part in (bos, "$A", eos) if part],
        special_tokens=[(token, tokenizer.token_to_id(token)) for token in sorted({bos, eos} - {""})],
    )


_END = "<|endoftext|>"
GPT2 = TokenizerKind(
    algorithm="BPE",
    assemble=_assemble,
    names={"unk_token": _END, "bos_token": _END, "eos_token": _END, "pad_token": None},
)
NEOX = TokenizerKind(
    algorithm="BPE",
    assemble=_assemble_neox,
    names={"unk_token": _END, "bos_token": _END, "eos_token": _END, "pad_token": "<|padding|>"},
    frame=_frame_neox,
)
QWEN2 = TokenizerKind(
    algorithm="BPE",
    assemble=_assemble_qwen,
    names={"unk_token": _END, "eos_token": _END, "pad_token": _END},
    is_plain=True,
)
ROBERTA = TokenizerKind(
    algorithm="BPE",
    assemble=_assemble,
    names={
        "bos_token": "<s>",
        "eos_token": "</s>",
        "sep_token": "</s>",
        "cls_token": "<s>",
        "unk_token": "<unk>",
        "pad_token": "<pad>",
        "mask_token": "<mask>",
    },
    frame=_frame_roberta,
)
WHISPER = TokenizerKind(
    algorithm="BPE",
    assemble=_assemble,
    names={"unk_token": _END, "bos_token": _END, "eos_token": _END},
)
