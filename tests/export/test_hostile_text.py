"""Hostile tokenizer files are refused with a sentence that names the file, before memory is taken."""

import json
import random
import struct
import time

import pytest
from tokenizer_directories import T5_IDS, byte_level, config_of, merges_files, spm, word_piece, write
from tokenizers import normalizers

from weft_export.converters.text import spm_model
from weft_export.converters.text.charsmap import check_charsmap
from weft_export.converters.text.side import read_text_side
from weft_export.errors import CheckpointError
from weft_proto.bundle_rules import MAX_READ_BYTES

JSON = json.loads(byte_level())
PLAIN = {"tokenizer.json": JSON}


def merged(**parts):
    """A good tokenizer.json with other parts."""
    return {"tokenizer.json": JSON | parts}


def model(**parts):
    """A good tokenizer.json with another vocabulary or merges."""
    return merged(model=JSON["model"] | parts)


def rules(charsmap):
    """A good tokenizer.json with compiled rules of normalisation, in base64."""
    return merged(normalizer={"type": "Precompiled", "precompiled_charsmap": charsmap})


# model_type, tokenizer_config.json, files, what the error says
HOSTILE = {
    "no json": ("falcon", None, {"tokenizer.json": "{"}, "tokenizer.json is not JSON"),
    "no object": ("falcon", None, {"tokenizer.json": "[]"}, "not a JSON object"),
    "too deep": ("falcon", None, {"tokenizer.json": '{"a":' + "[" * 200_000}, "deep|not JSON"),
    "half a surrogate": ("falcon", None, {"tokenizer.json": '{"a": "\\ud800"}'}, "surrogate"),
    "nothing in it": ("falcon", None, {"tokenizer.json": {}}, "tokenizer.json"),
    "an unknown part": ("falcon", None, merged(decoder={"type": "Shell"}), "does not make a tokenizer"),
    "a decoder that panics": ("falcon", None, merged(decoder={"type": "Sequence", "decoders": [{"type": "Fuse"},
        {"type": "Strip", "content": " ", "start": 0, "stop": 1}]}), "does not make a tokenizer"),
    "billions of ids": ("falcon", None, model(vocab={"a": 4_000_000_000}, merges=[]), "4000000000"),
    "negative ids": ("gpt2", None, model(vocab={"a": -1}, merges=[]), "-1"),
    "ids as text": ("gpt2", None, model(vocab={"a": "1"}, merges=[]), "'1'"),
    "ids beyond the embedding": ("gpt2", None, model(vocab={"a": 1, "b": 950}, merges=[]), "has 901 tokens"),
    "no vocabulary": ("gpt2", None, merged(model={}), "no vocabulary"),
    "merges of three": ("gpt2", None, model(merges=["a b c"]), "merge"),
    "merges of nothing": ("gpt2", None, model(merges=["q!! z!!"]), "does not make a tokenizer"),
    "no list of merges": ("gpt2", None, model(merges=5), "merge"),
    "another kind of pieces": ("t5", None, PLAIN, "Unigram"),
    "rules of garbage": ("falcon", None, rules("AAAA"), "rules of normalisation"),
    "rules that are no base64": ("t5", None, rules("!"), "base64"),
    "rules that are no text": ("t5", None, rules(5), "base64"),
    "no files": ("bert", None, {}, "neither tokenizer.json nor vocab.txt"),
    "no files, any kind": ("falcon", None, {}, "no tokenizer.json"),
    "no merges": ("gpt2", None, {"vocab.json": {"a": 0}}, "merges.txt"),
    "vocab.txt in Latin-1": ("bert", None, {"vocab.txt": b"[PAD]\n\xff"}, "not UTF-8"),
    "vocab.json as a list": ("gpt2", None, merges_files() | {"vocab.json": ["a"]}, "not a JSON object"),
    "spm of garbage": ("t5", None, {"spiece.model": b"\x00\xff garbage"}, "not a SentencePiece model"),
    "spm of text": ("t5", None, {"spiece.model": b"<html>not found</html>"}, "not a SentencePiece model"),
    "spm cut short": ("t5", None, {"spiece.model": spm(**T5_IDS)[:-100_001]}, "not a SentencePiece model"),
    "empty spm": ("t5", None, {"spiece.model": b""}, "no pieces"),
    "a long number": ("t5", None, {"spiece.model": b"\x08" + b"\xff" * 50}, "ten bytes"),
    "a score of NaN": ("t5", None, {"spiece.model": b"\x0a\x08\x0a\x01a\x15" + struct.pack("<f", float("nan"))}, "nan"),
    "no unknown piece": ("t5", None, {"spiece.model": b"\x0a\x08\x0a\x01a\x15\0\0\0\0\x12\x03\xc0\x02\x09"}, "unknown"),
    "BPE where unigram belongs": ("t5", None, {"spiece.model": spm("bpe", **T5_IDS)}, "Unigram"),
    "billions of sentinels": ("t5", {"extra_ids": 10**9}, {"spiece.model": spm(**T5_IDS)}, "extra_ids"),
    "negative offset": ("pegasus", {"offset": -1}, {"spiece.model": spm(**T5_IDS)}, "offset"),
    "a flag of text": ("bert", {"do_lower_case": "yes"}, {"vocab.txt": "\n".join(word_piece())}, "do_lower_case"),
    "special tokens split": ("falcon", {"split_special_tokens": True}, PLAIN, "split_special_tokens"),
    "a token of five": ("falcon", {"eos_token": 5}, PLAIN, "no content"),
    "a token of nothing": ("falcon", {"extra_special_tokens": [None]}, PLAIN, "empty"),
    "tokens of a number": ("falcon", {"extra_special_tokens": 5}, PLAIN, "no list"),
    "tokens of text": ("falcon", {"added_tokens_decoder": "a"}, PLAIN, "added_tokens_decoder"),
    "a token far away": ("falcon", {"added_tokens_decoder": {"9999999999": {"content": "a"}}}, PLAIN, "9999999999"),
    "a token nowhere": ("falcon", {"added_tokens_decoder": {"-1": {"content": "a"}}}, PLAIN, "-1"),
    "added tokens of text": ("falcon", None, PLAIN | {"added_tokens.json": {"a": "b"}}, "added_tokens.json"),
    "added tokens of a number": ("falcon", None, merged(added_tokens=5), "tokenizer.json"),
    "a template in Latin-1": ("falcon", None, PLAIN | {"chat_template.jinja": b"\xff"}, "not UTF-8"),
    "a template of five": ("falcon", {"chat_template": 5}, PLAIN, "chat_template"),
    "marian without a model": ("marian", None, {"vocab.json": {"<unk>": 0}}, "source.spm"),
    "marian without unknown": ("marian", None, {"vocab.json": {"a": 0}, "source.spm": spm()}, "<unk>"),
    "m2m of other languages": ("m2m_100", {"language_codes": "klingon"}, {"vocab.json": {"<unk>": 0},
        "sentencepiece.bpe.model": spm("bpe")}, "klingon"),
    "m2m with too many": ("m2m_100", None, {"vocab.json": {"<unk>": 0} | {str(i): i for i in range(1, 850)},
        "sentencepiece.bpe.model": spm("bpe")}, "with its languages"),
}  # fmt: skip


@pytest.mark.parametrize("name", HOSTILE)
def test_a_hostile_directory_is_refused(tmp_path, name):
    """A CheckpointError says what is wrong, at once."""
    model_type, options, files, said = HOSTILE[name]
    write(tmp_path, model_type, options, files)
    started = time.process_time()
    with pytest.raises(CheckpointError, match=said):
        read_text_side(tmp_path, config_of(tmp_path), 901)
    assert 20 > time.process_time() - started


def test_too_many_pieces_are_refused_before_they_are_kept(tmp_path, monkeypatch):
    """A model file of 64 MiB could name 33 million pieces; reading ends at the bound."""
    assert 2**20 == spm_model.MAX_PIECES
    monkeypatch.setattr(spm_model, "MAX_PIECES", 1000)
    (tmp_path / "m").write_bytes(b"\x0a\x00" * 1001)
    with pytest.raises(CheckpointError, match="more than 1000 pieces"):
        spm_model.read_spm_model(tmp_path / "m")


@pytest.mark.parametrize("name", ["tokenizer.json", "vocab.json", "tokenizer_config.json", "chat_template.jinja"])
def test_a_huge_file_is_not_read(tmp_path, name):
    """A file larger than a server reads as a whole is refused by its size."""
    write(tmp_path, "gpt2", None, merges_files())
    with (tmp_path / name).open("wb") as file:
        file.truncate(MAX_READ_BYTES + 1)
    with pytest.raises(CheckpointError, match=f"{name} has 67108865 bytes"):
        read_text_side(tmp_path, config_of(tmp_path), 901)


def test_rules_that_are_let_through_can_be_walked(tmp_path):
    """A charsmap with any bytes changed is either refused, or normalises any text without leaving it."""
    (tmp_path / "m").write_bytes(spm())
    good = spm_model.read_spm_model(tmp_path / "m").charsmap
    check_charsmap(tmp_path, good)
    draw, let_through = random.Random(0), 0
    for _ in range(300):
        bad = bytearray(good)
        for _ in range(draw.randrange(1, 4)):
            bad[draw.randrange(len(bad))] = draw.randrange(256)
        try:
            check_charsmap(tmp_path, bytes(bad))
        except CheckpointError:
            continue
        let_through += 1
        codes = [draw.choice([draw.randrange(0x20, 0x3000), draw.randrange(0xE000, 0x1FFFF)]) for _ in range(300)]
        normalizers.Precompiled(bytes(bad)).normalize_str("".join(map(chr, codes)))
    assert 10 < let_through < 300
