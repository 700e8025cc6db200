"""Tokenizers: of whole words for the grammars, of byte pairs for real text."""

from collections.abc import Iterable

from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers

PAD, START, END, UNKNOWN = range(4)
SPECIAL = ("<pad>", "<start>", "<end>", "<unknown>")
_SPACE = "▁"
# Contractions are written out, so that a model has only one form to learn. Order matters: "can't" before "n't".
_CONTRACTIONS = (
    ("can't", "can not"), ("cannot", "can not"), ("won't", "will not"), ("n't", " not"), ("'m", " am"), ("'re", " are"),
    ("'ll", " will"),
    *((f"{word}'s", f"{word} is") for word in ("he", "it", "who", "what", "where", "there", "how", "why")),
)  # fmt: skip


def word_tokenizer(words: Iterable[str]) -> Tokenizer:
    """Return a tokenizer that knows these words, the characters in them, and all bytes.

    Encoding lower-cases, writes out English contractions, drops commas and a full stop or exclamation mark at the end,
    and adds <end>. Decoding joins words with spaces and sets question marks as Spanish does.
    """
    words = sorted(set(words))
    characters = sorted({character for word in words for character in word} | {_SPACE})
    # A whole word is always likelier than any way to spell it.
    pieces = [(token, 0.0) for token in SPECIAL]
    pieces += [(_SPACE + word, -1.0) for word in words]
    pieces += [(character, -100.0) for character in characters]
    pieces += [(f"<0x{byte:02X}>", -200.0) for byte in range(256)]
    tokenizer = Tokenizer(models.Unigram(pieces, unk_id=UNKNOWN, byte_fallback=True))
    tokenizer.add_special_tokens([AddedToken(token, special=True) for token in SPECIAL])
    tokenizer.normalizer = normalizers.Sequence(
        [
            normalizers.NFC(),
            normalizers.Lowercase(),
            normalizers.Replace("\N{RIGHT SINGLE QUOTATION MARK}", "'"),
            *(normalizers.Replace(short, long) for short, long in _CONTRACTIONS),
            normalizers.Replace("'s", " 's"),
            normalizers.Replace(Regex(r"[,\s]+"), " "),
            # Without the first part, each mark of a long run would begin a search of the rest of it.
            normalizers.Replace(Regex(r"(?<![.!\s])[.!\s]+$"), ""),
            normalizers.Replace(Regex(r"\s*\?"), " ?"),
            normalizers.Replace(Regex(r"¿\s*"), "¿ "),
            normalizers.Strip(),
        ]
    )
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace(_SPACE, prepend_scheme="always", split=True)
    tokenizer.post_processor = processors.TemplateProcessing("$A <end>", special_tokens=[("<end>", END)])
    tokenizer.decoder = decoders.Sequence(
        [
            decoders.Replace(_SPACE, " "),
            decoders.ByteFallback(),
            decoders.Fuse(),
            decoders.Replace("¿ ", "¿"),
            decoders.Replace(" ?", "?"),
            decoders.Strip(" ", 1, 0),
        ]
    )
    return tokenizer


def byte_pair_tokenizer(texts: Iterable[str], vocab_size: int, template: str, *, lowercase: bool) -> Tokenizer:
    """Train byte-level byte-pair encoding.

    "Neural Machine Translation of Rare Words with Subword Units", Sennrich et al. 2016. `template` places the special
    tokens around a text, "$A".
    """
    tokenizer = Tokenizer(models.BPE())
    if lowercase:
        tokenizer.normalizer = normalizers.Lowercase()
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=vocab_size,
        special_tokens=list(SPECIAL),
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator(texts, trainer)
    tokenizer.post_processor = processors.TemplateProcessing(
        template, special_tokens=[(token, index) for index, token in enumerate(SPECIAL)]
    )
    return tokenizer
