"""Joined bytes of tokens are the text that the server decodes, for every kind of tokenizer that takes constraints."""

import random

import pytest
from tokenizers import Tokenizer as Library
from tokenizers import decoders, models

import tokenizer_kinds
from weft_server.logits_processors.constraint import NEVER, TextEnd
from weft_server.preprocessing.tokenizer import Tokenizer
from weft_server.structured_output.token_bytes import lexicon_of, token_bytes


def library(decoder, tokens):
    """A tokenizer of whole words with a decoder."""
    made = Library(models.WordLevel({token: i for i, token in enumerate(tokens)}, unk_token=tokens[0]))
    if decoder is not None:
        made.decoder = decoder
    return made


MARKED = ["<unk>", "▁", "▁a", "b", "▁▁c▁d", "é▁", "##x", ".", "日", " e", "{", '"', "▁{"]
BYTES = [f"<0x{byte:02X}>" for byte in (0x20, 0x41, 0xC3, 0xA9, 0x7B, 0xFF)]
LLAMA = [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse(), decoders.Strip(" ", 1, 0)]
KINDS = {
    "byte level": tokenizer_kinds.byte_level,
    "words": tokenizer_kinds.words,
    "word piece": tokenizer_kinds.word_piece,
    "word piece as it is": lambda: library(decoders.WordPiece(cleanup=False), MARKED),
    "no decoder": lambda: library(None, MARKED),
    "fuse": lambda: library(decoders.Fuse(), MARKED),
    "metaspace": lambda: library(decoders.Metaspace(), MARKED),
    "metaspace never": lambda: library(decoders.Metaspace(prepend_scheme="never"), MARKED),
    "llama": lambda: library(decoders.Sequence(LLAMA), MARKED + BYTES),
    "byte fallback then metaspace": lambda: library(
        decoders.Sequence([decoders.ByteFallback(), decoders.Metaspace()]), MARKED + BYTES
    ),
    "gemma": lambda: library(decoders.Sequence(LLAMA[:3]), MARKED + BYTES),
    "strips tokens": lambda: library(decoders.Sequence([decoders.Strip("b", 1, 1), *LLAMA]), [*MARKED, "bbabb"]),
}
REFUSED = {
    "BPE's suffix": decoders.BPEDecoder(),
    "CTC": decoders.CTC(),
    "a pattern": decoders.Sequence([decoders.Replace(__import__("tokenizers").Regex("a+"), "b")]),
    "the end": decoders.Sequence([decoders.Fuse(), decoders.Strip(" ", 0, 1)]),
    "two spaces": decoders.Sequence([decoders.Fuse(), decoders.Strip(" ", 2, 0)]),
    "marks of the whole": decoders.Sequence([decoders.Fuse(), decoders.Metaspace()]),
}


def load(tmp_path, made):
    """A tokenizer as the server loads it."""
    path = tmp_path / "tokenizer.json"
    made.save(str(path))
    return Tokenizer(path)


def told(lexicon, words, ids):
    """The bytes that a lexicon tells of tokens, or None if one of them must not come where it stands."""
    place, told = TextEnd(), b""
    for id_ in ids:
        word = int(lexicon.words_at(place)[id_])
        if word == NEVER and not (place.is_start and id_ in lexicon.blank):
            return None
        told += words[word]
        place = TextEnd(place.tail + lexicon.raw[id_], lexicon.is_spelled[id_], is_start=False)
    return told


@pytest.mark.parametrize("kind", KINDS)
def test_joined_bytes_are_the_decoded_text(tmp_path, kind):
    """Of random tokens, wherever the bytes are UTF-8 and no token stands where it must not."""
    tokenizer = load(tmp_path, KINDS[kind]())
    words, lexicon = lexicon_of(token_bytes(tokenizer.vocabulary, tokenizer.num_ids + 3))
    ids = [id_ for id_, raw in enumerate(lexicon.raw) if raw is not None]
    rng, checked = random.Random(kind), 0
    for _ in range(3000):
        answer = rng.choices(ids, k=rng.choice([1, 2, 3, 8, 40]))
        if rng.random() < 0.7:  # many byte tokens are no text: take what is
            answer = [id_ for id_ in answer if lexicon.is_spelled[id_] or lexicon.raw[id_].isascii()] or answer[:1]
        try:
            text = told(lexicon, words, answer).decode()
        except (UnicodeDecodeError, AttributeError):
            continue
        assert text == tokenizer.decode(answer), [tokenizer.vocabulary.tokens[id_] for id_ in answer]
        checked += 1
    assert 300 < checked


def test_a_space_behind_a_mark_that_takes_it_is_no_part_of_the_text(tmp_path):
    """Of our Spanish models: "¿" and "▁pan" are "¿pan", unless the mark is spelled by bytes."""
    tokenizer = load(tmp_path, tokenizer_kinds.words())
    words, lexicon = lexicon_of(token_bytes(tokenizer.vocabulary, tokenizer.num_ids))
    ids = {token: id_ for id_, token in tokenizer.vocabulary.tokens.items()}

    mark, bread, blank, query = (ids[token] for token in ("▁¿", "▁pan", "▁", "?"))
    assert "¿pan?".encode() == told(lexicon, words, [mark, bread, query])
    assert b"hola pan?" == told(lexicon, words, [ids["▁hola"], bread, ids["▁?"]])
    assert told(lexicon, words, [mark, blank]) is None
    assert told(lexicon, words, [bread, blank, query]) is None
    assert told(lexicon, words, [ids["<0xC2>"], ids["<0xBF>"], bread]) is None


def test_special_and_unknown_ids_add_nothing(tmp_path):
    """Neither special tokens nor ids beyond the tokenizer are ever used."""
    tokenizer = load(tmp_path, tokenizer_kinds.byte_level())
    spelled = token_bytes(tokenizer.vocabulary, tokenizer.num_ids + 3)

    assert [None] * 2 == spelled.first[:2] == spelled.later[:2]
    assert [None] * 3 == spelled.first[-3:] == spelled.later[-3:]


@pytest.mark.parametrize("kind", REFUSED)
def test_a_decoder_that_looks_beyond_a_token_is_refused(tmp_path, kind):
    """Where the text is not told by single tokens, nothing is promised."""
    assert token_bytes(load(tmp_path, library(REFUSED[kind], MARKED)).vocabulary, 20) is None
