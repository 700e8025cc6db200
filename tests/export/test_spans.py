"""The spans that an int8 export scores are those that a server returns."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers, processors

from few import draws
from normalizers import NORMALIZERS
from weft_export.checkpoints.spans import spans_of
from weft_proto.v1 import classification_pb2
from weft_server.preprocessing import token_labels as server_tags
from weft_server.preprocessing import tokenizer as server_tokenizer

TEXT = "in Paris we met  Ana"
LABELS = ["O", "B-PLACE", "I-PLACE", "B-PERSON", "I-PERSON"]


def metaspace():
    """Marks before words, one of which stands alone."""
    words = ["[UNK]", "▁", "in", "▁in", "▁Paris", "▁we", "▁met", "▁Ana"]
    tokenizer = Tokenizer(models.WordLevel({word: i for i, word in enumerate(words)}, unk_token="[UNK]"))
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace()
    tokenizer.decoder = decoders.Metaspace()
    return tokenizer


def byte_level():
    """Marks before words, which its offsets hold."""
    words = ["[UNK]", "in", "ĠParis", "Ġwe", "Ġmet", "Ġ", "ĠAna"]
    tokenizer = Tokenizer(models.WordLevel({word: i for i, word in enumerate(words)}, unk_token="[UNK]"))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.post_processor = processors.ByteLevel(trim_offsets=False)
    tokenizer.decoder = decoders.ByteLevel()
    return tokenizer


def marks_apart():
    """A mark is a token of its own, put before the word that it belongs to."""
    tokenizer = Tokenizer(models.Unigram([("[UNK]", 0.0), ("▁", -1.0), *((each, -9.0) for each in "inParswemtA")], 0))
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace()
    tokenizer.decoder = decoders.Metaspace()
    return tokenizer


@pytest.mark.parametrize("make", [metaspace, byte_level, marks_apart])
def test_spans_are_those_of_a_server(make, tmp_path):
    """Whatever the tokens are labelled: without white space, and across marks that stand for no text."""
    make().save(str(tmp_path / "tokenizer.json"))
    pieces = server_tokenizer.Tokenizer(tmp_path / "tokenizer.json").split(TEXT)
    found = set()
    for turn in range(3 ** min(len(pieces), 7)):
        labels = [LABELS[(turn // 3 ** (index % 7) + index // 7) % len(LABELS)] for index in range(len(pieces))]
        tokens = [
            classification_pb2.TokenLabel(label=label, start=piece.start, end=piece.end)
            for label, piece in zip(labels, pieces, strict=True)
            if not piece.added
        ]
        expected = [(span.label, span.start, span.end) for span in server_tags.spans_of(tokens, TEXT)]
        assert expected == spans_of(labels, TEXT, make())
        found |= set(expected)

    assert len(found) > 10


@pytest.mark.parametrize("kind", NORMALIZERS)
@settings(max_examples=draws(60), deadline=None)
@given(text=st.text("aeoz \u0301\u0323\u1112\u1161ㄱㅏﬁ👩\u200d\x01`.", min_size=1), seed=st.integers(0, 1 << 40))
def test_spans_of_composed_characters_are_those_of_a_server(tmp_path_factory, kind, text, seed):
    """Whatever a normaliser makes of the text, exporter and server cut the same spans out of it."""
    tokenizer = Tokenizer(models.WordLevel({"[UNK]": 0}, unk_token="[UNK]"))
    if NORMALIZERS[kind]:
        tokenizer.normalizer = NORMALIZERS[kind]
    tokenizer.pre_tokenizer = pre_tokenizers.Split(Regex("(?m).|\\s"), "isolated")
    path = tmp_path_factory.mktemp("tokenizer") / "tokenizer.json"
    tokenizer.save(str(path))
    pieces = server_tokenizer.Tokenizer(path).split(text)
    labels = [LABELS[seed // 3**index % len(LABELS)] for index in range(len(pieces))]
    tokens = [
        classification_pb2.TokenLabel(label=label, start=piece.start, end=piece.end)
        for label, piece in zip(labels, pieces, strict=True)
    ]
    expected = [(span.label, span.start, span.end) for span in server_tags.spans_of(tokens, text)]
    assert expected == spans_of(labels, text, tokenizer)
