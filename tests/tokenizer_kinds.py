"""Tokenizers of three kinds, as the library makes them: of bytes, of words with a space mark, and BERT's; and texts."""

import tokenizers
from hypothesis import strategies as st
from tokenizers import AddedToken, decoders, models, normalizers, pre_tokenizers, processors, trainers

CORPUS = ["hello world, we are eating bread", "¿dónde está el niño? ñandú", "日本語 と 😀 emoji 👩‍👩‍👧", "a  b\n\tc"]
# Any text, with many of the characters that tokenizers treat differently.
TEXTS = st.text(st.one_of(st.sampled_from("ab ñ日本😀👩‍👧?¿\n�"), st.characters(exclude_categories=["Cs"])))


def byte_level() -> tokenizers.Tokenizer:
    """Byte-level BPE, as GPT-2's, with a special token and one added as text."""
    tokenizer = tokenizers.Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=330,
        special_tokens=["<s>", "<end>"],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator(CORPUS * 3, trainer)
    tokenizer.add_tokens([AddedToken("[ñ ☃]", special=False)])
    tokenizer.post_processor = processors.TemplateProcessing("$A <end>", special_tokens=[("<end>", 1)])
    return tokenizer


def words() -> tokenizers.Tokenizer:
    """Words with a space mark, characters and bytes to fall back on, and question marks that swallow a space."""
    words = ["▁hola", "▁pan", "▁donde", "▁¿", "▁?", "▁", "?", "a", "b", "▁a▁"]
    pieces = [("<s>", 0.0), ("<unk>", 0.0), *((word, -1.0) for word in words)]
    pieces += [(f"<0x{byte:02X}>", -200.0) for byte in range(256)]
    tokenizer = tokenizers.Tokenizer(models.Unigram(pieces, unk_id=1, byte_fallback=True))
    tokenizer.add_special_tokens([AddedToken("<s>", special=True), AddedToken("<unk>", special=True)])
    tokenizer.normalizer = normalizers.NFC()
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace("▁", prepend_scheme="always")
    tokenizer.decoder = decoders.Sequence(
        [
            decoders.Replace("▁", " "),
            decoders.ByteFallback(),
            decoders.Fuse(),
            decoders.Replace("¿ ", "¿"),
            decoders.Replace(" ?", "?"),
            decoders.Strip(" ", 1, 0),
        ]
    )
    return tokenizer


def word_piece() -> tokenizers.Tokenizer:
    """BERT's: ## marks a continuation, and decoding tidies punctuation up."""
    vocab = {word: i for i, word in enumerate(["[UNK]", "hello", "wor", "##ld", ".", "do", "n't", ",", "##s"])}
    tokenizer = tokenizers.Tokenizer(models.WordPiece(vocab, unk_token="[UNK]"))
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    tokenizer.decoder = decoders.WordPiece()
    return tokenizer


def letters() -> tokenizers.Tokenizer:
    """Single characters and some words, with marks that stand for spaces, decoded as T5's are."""
    characters = sorted({*'"{}[]:,.-!?()/|\\+*.', *"▁abcdefghijklmnopqrstuvwxyzñúóé日本語😀xy0123456789"})
    words = ["▁hola", "▁name", "age", "▁a", "▁▁", '▁{"', "null", "▁日本"]
    pieces = [("<pad>", 0.0), ("<unk>", 0.0), *((word, -2.0) for word in [*characters, *words])]
    tokenizer = tokenizers.Tokenizer(models.Unigram(pieces, unk_id=1, byte_fallback=False))
    tokenizer.add_special_tokens([AddedToken("<pad>", special=True), AddedToken("<unk>", special=True)])
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace("▁", prepend_scheme="always")
    tokenizer.decoder = decoders.Metaspace("▁", prepend_scheme="always")
    return tokenizer
