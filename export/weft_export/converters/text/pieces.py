"""BPE over SentencePiece's pieces: the tokenizers of Llama, Gemma and NLLB."""

from dataclasses import replace

from tokenizers import Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers

from weft_export.converters.text.kind import TokenizerKind, framed
from weft_export.converters.text.settings import Names, TokenizerSettings, text_of
from weft_export.converters.text.vocabulary import Scores, Vocabulary

SPACE = "▁"
"""What stands for a space in a piece."""


def _assemble_llama(vocabulary: Vocabulary, settings: TokenizerSettings, _names: Names) -> Tokenizer:
    model = models.BPE(dict(vocabulary.ids), vocabulary.merges, fuse_unk=True, byte_fallback=True)
    tokenizer = Tokenizer(model)
    prefix = settings.flag("add_prefix_space", default=True)
    # The older behaviour puts a space behind every special token too.
    with_space = "always" if settings.flag("legacy", default=False) else "first"
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace(SPACE, with_space if prefix else "never", split=False)
    steps = [decoders.Replace(SPACE, " "), decoders.ByteFallback(), decoders.Fuse()]
    tokenizer.decoder = decoders.Sequence([*steps, decoders.Strip(" ", 1, 0)] if prefix else steps)
    return tokenizer


def _assemble_gemma(vocabulary: Vocabulary, _settings: TokenizerSettings, names: Names) -> Tokenizer:
    unk = text_of(names, "unk_token")
    model = models.BPE(dict(vocabulary.ids), vocabulary.merges, unk_token=unk, fuse_unk=True, byte_fallback=True)
    tokenizer = Tokenizer(model)
    tokenizer.normalizer = normalizers.Replace(" ", SPACE)
    tokenizer.pre_tokenizer = pre_tokenizers.Split(" ", behavior="merged_with_previous", invert=False)
    tokenizer.decoder = decoders.Sequence([decoders.Replace(SPACE, " "), decoders.ByteFallback(), decoders.Fuse()])
    return tokenizer


def _assemble_siglip2(vocabulary: Vocabulary, settings: TokenizerSettings, names: Names) -> Tokenizer:
    tokenizer = _assemble_gemma(vocabulary, settings, names)
    tokenizer.normalizer = normalizers.Sequence([normalizers.Lowercase(), tokenizer.normalizer])
    return tokenizer


def _assemble_nllb(vocabulary: Vocabulary, _settings: TokenizerSettings, names: Names) -> Tokenizer:
    unk = text_of(names, "unk_token")
    tokenizer = Tokenizer(models.BPE(dict(vocabulary.ids), vocabulary.merges, unk_token=unk, fuse_unk=True))
    if vocabulary.charsmap:
        rules = normalizers.Precompiled(vocabulary.charsmap)
        tokenizer.normalizer = normalizers.Sequence([rules, normalizers.Replace(Regex(" {2,}"), " ")])
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace(SPACE, "always", split=True)
    tokenizer.decoder = decoders.Metaspace(SPACE, "always", split=True)
    return tokenizer


def _reorder_nllb(scores: Scores, _settings: TokenizerSettings, names: Names) -> Scores:
    first = [str(names[name]) for name in ("bos_token", "pad_token", "eos_token", "unk_token")]
    return [*((token, 0.0) for token in first), *(each for each in scores if each[0] not in first)]


LLAMA = TokenizerKind(
    algorithm="BPE",
    assemble=_assemble_llama,
    names={"unk_token": "<unk>", "bos_token": "<s>", "eos_token": "</s>"},
    model_file="tokenizer.model",
)
GEMMA = TokenizerKind(
    algorithm="BPE",
    assemble=_assemble_gemma,
    names={
        "unk_token": "<unk>",
        "bos_token": "<bos>",
        "eos_token": "<eos>",
        "pad_token": "<pad>",
        "mask_token": "<mask>",
    },
    model_file="tokenizer.model",
)
SIGLIP2 = replace(GEMMA, assemble=_assemble_siglip2)
FAIRSEQ_NAMES: Names = {
    "bos_token": "<s>",
    "eos_token": "</s>",
    "sep_token": "</s>",
    "cls_token": "<s>",
    "unk_token": "<unk>",
    "pad_token": "<pad>",
    "mask_token": "<mask>",
}
# The language's token is put before or behind a text by the server, which knows the request's language.
NLLB = TokenizerKind(
    algorithm="BPE",
    assemble=_assemble_nllb,
    names=FAIRSEQ_NAMES,
    frame=framed((), ("eos_token",)),
    model_file="sentencepiece.bpe.model",
    reorder=_reorder_nllb,
    mask_takes_space=True,
    mask_is_normalised=True,
)
