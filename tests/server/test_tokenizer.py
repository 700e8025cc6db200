"""Tokenizers: each token knows its place in the text, and what a file says beyond that changes nothing."""

import json
import re
import time
from pathlib import Path

import pytest
import tokenizers
from hypothesis import given, settings
from tokenizers import models, pre_tokenizers, processors

import tokenizer_kinds
from few import counts
from hostile_tokenizers import split as cut_at
from hostile_tokenizers import tokenizer as tokenizer_file
from tokenizer_kinds import TEXTS
from weft_proto.offsets import Offsets
from weft_server.errors import BundleError, InvalidRequest
from weft_server.preprocessing.tokenizer import MAX_SIGNS, SourceTruncation, Tokenizer, TokenizerFailed, known


@settings(max_examples=300, deadline=None)
@given(text=TEXTS)
def test_tokens_know_their_place_in_the_text(byte_level, words, word_piece, text):
    """The ids are `encode`'s; places are code points inside the text, in order, and without white space around them."""
    for tokenizer, _ in (byte_level, words, word_piece):
        pieces = tokenizer.split(text)
        assert tokenizer.encode(text) == [piece.id for piece in pieces]
        places = [(piece.start, piece.end) for piece in pieces if not piece.added]
        assert all(0 <= start <= end <= len(text) for start, end in places)
        assert sorted(places) == places
        covered = [text[start:end] for start, end in places]
        assert all(part.strip() == part for part in covered if part.strip())


@pytest.mark.parametrize(
    ("kind", "expected"),
    [
        ("byte_level", [" ", " ", "hello", "ñandú", "😀", "👩\u200d", "👧", "world", "\n"]),
        ("word_piece", ["hello", "ñandú", "😀", "👩\u200d👧", "wor", "ld"]),
    ],
)
def test_places_count_code_points(request, kind, expected):
    """Characters of several bytes or beyond 16 bits count one each, and leading spaces count too."""
    tokenizer, _ = request.getfixturevalue(kind)
    text = "  hello ñandú 😀 👩\u200d👧 world\n"
    assert expected == [text[start:end] for _, start, end, added in tokenizer.split(text) if not added]


def test_composed_characters_stand_where_all_their_code_points_do(words):
    """A file that composes: a word ends behind its last mark or jamo."""
    text = "ro\u0301 \u1112\u1161\u11ab e\u0301"
    places = [(start, end) for _, start, end, _ in words[0].split(text)]
    assert {3, 7, 10} <= {end for _, end in places}
    assert {2, 5, 6, 9}.isdisjoint(end for _, end in places)


def test_every_part_of_a_character_stands_where_the_character_does(byte_level):
    """Tokens that are bytes of one character share its place."""
    tokenizer, _ = byte_level
    text = "a \U0001f9e0b"
    places = [(start, end) for _, start, end, added in tokenizer.split(text) if not added]
    assert (0, 1) == places[0]
    assert (3, 4) == places[-1]
    assert {(2, 3)} == set(places[1:-1])
    assert len(places) > 3


@pytest.mark.parametrize("scheme", ["always", "first"])
def test_a_word_boundary_mark_alone_stands_for_nothing(tmp_path, scheme):
    """A mark that the tokenizer itself put before a word claims no part of it; one that is white space stands there."""
    vocab = [("<unk>", 0.0), ("▁", -1.0), ("▁cat", -1.0)]
    reference = tokenizers.Tokenizer(models.Unigram(vocab, 0, byte_fallback=False))
    reference.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme=scheme)
    reference.save(str(tmp_path / "tokenizer.json"))
    tokenizer = Tokenizer(tmp_path / "tokenizer.json")
    assert [(0, 0), (0, 1), (2, 5), (5, 6), (7, 10)] == [piece[1:3] for piece in tokenizer.split("q cat  cat")]


def test_added_tokens_are_those_of_the_post_processor(byte_level):
    """A special token that the text itself spells is text; the one that closes every text is not."""
    tokenizer, reference = byte_level
    pieces = tokenizer.split("a <end>")
    assert [(2, 7, False), (0, 0, True)] == [tuple(piece[1:]) for piece in pieces if piece.id == 1]
    ids = [piece.id for piece in pieces]
    assert 2 == ids.count(1)
    assert [False] * (len(ids) - 1) + [True] == tokenizer.added(ids)
    assert not any(tokenizer.added([reference.token_to_id("<s>"), 1, *reference.encode("a").ids[:-1]]))


def test_pieces_show_tokens_without_marks(byte_level, words):
    """Pieces carry no byte-level or space marks, name special tokens, and show lone bytes as such."""
    tokenizer, reference = byte_level
    ids = [*reference.encode(" hello ñ\n").ids, reference.token_to_id("ð"), 9999]
    assert "".join(tokenizer.pieces(ids)).endswith("\n<end><0xF0><9999>")
    assert all("Ġ" not in piece for piece in tokenizer.pieces(range(tokenizer.num_ids)))
    assert ["hola", "?", "<0xC3>", "<s>"] == words[0].pieces(
        [words[1].token_to_id(token) for token in ("▁hola", "▁?", "<0xC3>", "<s>")]
    )


def test_limits_in_the_file_are_switched_off(tmp_path):
    """A file's own truncation and padding do not touch a request: too long is refused elsewhere, never cut."""
    reference = tokenizer_kinds.byte_level()
    reference.enable_truncation(3)
    reference.enable_padding(length=50)
    reference.save(str(tmp_path / "tokenizer.json"))
    text = "hello world " * 5
    assert text == (tokenizer := Tokenizer(tmp_path / "tokenizer.json")).decode(tokenizer.encode(text))
    assert 1 == tokenizer.encode("a")[-1]


# What makes texts of a number of tokens: units of one token each, and what joins them.
UNITS = {"byte_level": ("ZQXJK", ""), "words": (["hola", "pan", "donde"], " "), "word_piece": (["hello", "do"], " ")}
FRAMES = ["[0] $A [1] $B [1]", "$A [1] [0] $B", "$A $B", "$B [0] $A", None]


def framing(pair):
    """A post-processor that joins two texts so."""
    special = [("[0]", 0), ("[1]", 1)]
    return processors.TemplateProcessing(single="[0] $A [1]", pair=pair, special_tokens=special)


@pytest.mark.parametrize("longest", counts(12, 20))
@pytest.mark.parametrize("direction", ["right", "left"])
@pytest.mark.parametrize("frame", FRAMES)
@pytest.mark.parametrize("kind", UNITS)
def test_two_texts_are_cut_as_the_library_cuts_them(kind, frame, direction, longest, tmp_path):
    """The longer one first. All pairs of 0 to `longest` tokens, for odd and even room."""
    reference = getattr(tokenizer_kinds, kind)()
    if frame is None:
        reference.post_processor = None
    else:
        reference.post_processor = framing(frame)
    reference.save(str(tmp_path / "tokenizer.json"))
    units, joint = UNITS[kind]
    texts = [joint.join(units[index % len(units)] for index in range(length)) for length in range(longest + 1)]
    assert [*range(longest + 1)] == [len(reference.encode(text, add_special_tokens=False).ids) for text in texts]
    for most in (6, 11, 12, longest * 3 // 2):
        reference.enable_truncation(most, direction=direction)
        tokenizer = Tokenizer(tmp_path / "tokenizer.json", SourceTruncation(most, direction))
        for pair in ((text, other) for text in texts for other in reversed(texts)):
            assert reference.encode(*pair).ids == tokenizer.encode_pair(pair), (most, pair)


@pytest.mark.parametrize("direction", ["right", "left"])
def test_two_long_texts_cost_what_one_does(tmp_path, direction):
    """The library keeps all that it cuts off, and joins each part of one text with each of the other: gigabytes."""
    reference = tokenizer_kinds.word_piece()
    reference.post_processor = framing(FRAMES[0])
    reference.save(str(tmp_path / "tokenizer.json"))
    tokenizer = Tokenizer(tmp_path / "tokenizer.json", SourceTruncation(512, direction))
    tokenizer.encode_pair(("a", "a"))
    Path("/proc/self/clear_refs").write_text("5", encoding="ascii")
    before, started = memory("VmRSS"), time.process_time()
    assert 512 == len(tokenizer.encode_pair(("a " * 65_536,) * 2))
    assert memory("VmHWM") - before < 100 << 10
    assert time.process_time() - started < 5


def memory(name):
    """A line of this process's status, in KiB."""
    return int(re.search(rf"{name}:\s+(\d+)", Path("/proc/self/status").read_text(encoding="ascii"))[1])


@pytest.mark.parametrize("content", ["", "{}", "[1]"])
def test_no_tokenizer_is_a_bundle_error(tmp_path, content):
    """A file that is no tokenizer refuses the bundle with its name."""
    path = tmp_path / "tokenizer.json"
    path.write_text(content)
    with pytest.raises(BundleError, match=r"tokenizer\.json is no tokenizer"):
        Tokenizer(path)


@pytest.mark.parametrize(("sign", "text"), [("{", "{{"), ("[", "[["), (",", ",,")])
def test_a_file_has_few_objects_and_lists(tmp_path, monkeypatch, sign, text):
    """As many as the bound pass, wherever they stand, and one more is refused before it is made an object of."""
    path = tmp_path / "tokenizer.json"
    tokenizers.Tokenizer(models.WordLevel({"a": 0, text: 1}, unk_token="a")).save(str(path))
    count = path.read_text().count(sign)
    monkeypatch.setitem(MAX_SIGNS, sign.encode(), count)
    assert [0] == Tokenizer(path).encode("a")
    monkeypatch.setitem(MAX_SIGNS, sign.encode(), count - 1)
    with pytest.raises(BundleError) as refused:
        Tokenizer(path)
    assert f"tokenizer.json is no tokenizer: it has the sign {sign} more than {count - 1} times" == str(refused.value)


def test_a_word_that_a_vocabulary_without_unknown_lacks(tmp_path):
    """Such a file is a tokenizer all the same; a text that it cannot encode is the text's fault."""
    words = tokenizers.Tokenizer(models.WordLevel({"1": 0, "2": 1}))
    words.pre_tokenizer = pre_tokenizers.Whitespace()
    words.save(str(tmp_path / "tokenizer.json"))
    tokenizer = Tokenizer(tmp_path / "tokenizer.json")

    assert [0, 1] == tokenizer.encode("1 2")
    for reads in (tokenizer.encode, tokenizer.split):
        with pytest.raises(ValueError, match="UNK"):
            reads("1 three")


@pytest.fixture
def cuts_by_a_bad_expression(tmp_path):
    """A tokenizer whose expression takes for ever to fail over some texts. It is found out over none of those tried."""
    path = tmp_path / "tokenizer.json"
    path.write_text(json.dumps(tokenizer_file(pre_tokenizer=cut_at("(x+)+$"))))
    return Tokenizer(path)


@pytest.mark.parametrize("reads", ["encode", "encode_framed", "split"])
def test_a_panic_over_a_text_is_the_texts(cuts_by_a_bad_expression, reads):
    """It is no bug of the server's, and the next text is read as ever."""
    read = getattr(cuts_by_a_bad_expression, reads)
    before = read("a a")
    with pytest.raises(TokenizerFailed, match="retry-limit"):
        read("x" * 64 + "!")
    with pytest.raises(InvalidRequest, match="target_text cannot be tokenized: the model's tokenizer fails") as refused:
        known(read, "x" * 64 + "!", "target_text")
    assert "target_text" == refused.value.field
    assert before == read("a a")


def test_a_panic_over_places_is_the_texts(words, monkeypatch):
    """The library is asked for them too."""

    class PanicException(BaseException):
        """As the library's own is called."""

    def panics(*_):
        raise PanicException("retry-limit")

    monkeypatch.setattr(Offsets, "of", panics)
    with pytest.raises(TokenizerFailed, match="retry-limit"):
        words[0].split("a")


class Panic(BaseException):
    """What the library's own panics are: no Exception."""


def test_a_panic_of_the_library_is_a_bundle_error(tmp_path, monkeypatch):
    """A file that makes it panic refuses its bundle, and keeps no other model from loading."""

    def panics(path):
        raise Panic("index out of bounds")

    (tmp_path / "tokenizer.json").write_text("{}")
    monkeypatch.setattr(tokenizers.Tokenizer, "from_buffer", panics)
    with pytest.raises(BundleError, match="index out of bounds"):
        Tokenizer(tmp_path / "tokenizer.json")
