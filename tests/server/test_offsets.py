"""Tokens stand for whole characters of the text as it was given, whatever the normaliser made of it."""

import time

import pytest
import tokenizers
from hypothesis import example, given, settings
from hypothesis import strategies as st
from tokenizers import AddedToken, Regex, models, pre_tokenizers

from few import draws
from normalizers import NORMALIZERS
from weft_proto import offsets as places_file
from weft_proto.offsets import _CHARACTERS, Offsets, _characters
from weft_server.preprocessing.tokenizer import Tokenizer

WORDS = pre_tokenizers.WhitespaceSplit()
LETTERS = pre_tokenizers.Split(Regex("(?m)."), "isolated")


def reference(normalizer, pre_tokenizer=WORDS):
    """A tokenizer whose tokens are what the pre-tokenizer makes."""
    tokenizer = tokenizers.Tokenizer(models.WordLevel({"[UNK]": 0}, unk_token="[UNK]"))
    if normalizer is not None:
        tokenizer.normalizer = normalizer
    tokenizer.pre_tokenizer = pre_tokenizer
    return tokenizer


def parts(tokenizer, text):
    """What of a text each of its tokens stands for."""
    return [text[start:end] for start, end in Offsets(tokenizer).of(text, tokenizer.encode(text))]


# Letters, marks of several classes, jamo of all kinds, kana with half-width marks, ligatures, families of emoji.
STARTERS = "aeozŁÅﬁß한가\u1112ㄱ\uffa1ｶカक\u0958👩👍✈"
MARKS = "\u0301\u0323\u0308\u0327\u20dd\ufe0f\u093c\u3099\uff9e\u1161\u11ab"
CHARACTERS = st.builds(str.__add__, st.sampled_from(STARTERS), st.text(MARKS, max_size=3))
TEXT = st.lists(st.lists(CHARACTERS, min_size=1, max_size=5).map("".join), min_size=1, max_size=6).map(" ".join)


@pytest.mark.parametrize("kind", NORMALIZERS)
@settings(max_examples=draws(60), deadline=None)
@given(text=TEXT)
def test_words_are_whole(kind, text):
    """Tokens that are words stand for the words of the text, to their last mark."""
    assert text.split() == parts(reference(NORMALIZERS[kind]), text)


@pytest.mark.parametrize("kind", NORMALIZERS)
@settings(max_examples=draws(60), deadline=None)
@given(text=TEXT)
def test_no_code_point_is_lost_or_taken(kind, text):
    """Tokens that are characters stand for all code points together; what one is given, none had before."""
    tokenizer = reference(NORMALIZERS[kind], LETTERS)
    before = tokenizer.encode(text).offsets
    after = Offsets(tokenizer).of(text, tokenizer.encode(text))
    assert set(range(len(text))) == {index for place in after for index in range(*place)}
    for (start, end), (wider_start, wider_end) in zip(before, after, strict=True):
        given_back = {*range(wider_start, start), *range(end, wider_end)}
        assert given_back.isdisjoint(index for place in before for index in range(*place))
        assert wider_start <= start < end <= wider_end


@pytest.mark.parametrize("kind", NORMALIZERS)
@settings(max_examples=draws(60), deadline=None)
@given(text=st.text(max_size=30))
def test_places_of_any_text_lie_in_it(kind, text):
    """Whatever the text: places are inside of it, in order, and white space stands only in places of its own."""
    places = Offsets(tokenizer := reference(NORMALIZERS[kind], LETTERS)).of(text, tokenizer.encode(text))
    assert all(0 <= start <= end <= len(text) for start, end in places)
    assert sorted(places) == places
    assert not any(text[start:end] != text[start:end].strip() and end - start > 1 for start, end in places)


@pytest.mark.parametrize(
    ("kind", "text", "expected"),
    [
        ("NFC", "Ło\u0301dz\u0301 x", ["Ł", "o\u0301", "d", "z\u0301", " ", "x"]),
        ("NFC", "\u1112\u1161\u11ab\u1100\u1161z", ["\u1112\u1161\u11ab", "\u1100\u1161", "z"]),
        ("NFC", "a\u0301\u0323", ["a\u0301", "\u0323"]),  # composed with the second mark; the first is a token
        ("NFD", "éx", ["é", "é", "x"]),
        ("NFKC", "ﬁe\u0301", ["ﬁ", "ﬁ", "e\u0301"]),
        ("NFKC", "ㄱㅏz", ["ㄱㅏ", "z"]),  # no marks, yet composed
        ("NFKC", "ｶﾞz", ["ｶﾞ", "z"]),
        ("StripAccents", "e\u0301\u0323x\u0301 \u0301a", ["e\u0301\u0323", "x\u0301", " ", "a"]),
        ("StripAccents", "က\u109ax", ["က\u109a", "x"]),  # a mark, though Unicode counts it as a character of its own
        ("BertNormalizer", "👩\u200d👧", ["👩\u200d", "👧"]),
        ("BertNormalizer", "a\x01b", ["a", "b"]),  # it belongs to none of both
        ("Replace", "x``y", ["x", "``", "y"]),
        ("Replace", "a...o....", ["a", "...", "o", "...", "."]),
        ("Replace", "xe\u0301y", ["x", "e\u0301", "y"]),
        ("Replace", "xoooy", ["x", "ooo", "y"]),
        ("Prepend", "e\u0301x", ["e\u0301", "e\u0301", "x"]),
        ("Precompiled", "e\u0301\x01z", ["e\u0301", "z"]),
    ],
)
def test_a_character_made_of_several_is_whole(kind, text, expected):
    """What the normaliser made one belongs to the token of that one, on either side."""
    assert expected == parts(reference(NORMALIZERS[kind], LETTERS), text)


@pytest.mark.parametrize("normalizer", [None, NORMALIZERS["NFC"], NORMALIZERS["Prepend"]])
def test_what_a_pre_tokenizer_drops_belongs_to_nobody(normalizer):
    """A hyphen between words is a character of its own; a mark that is dropped goes with its letter."""
    tokenizer = reference(normalizer, pre_tokenizers.Split(Regex("[-\u0301]"), "removed"))
    assert ["co", "op", "tx\u0301", "s"] == parts(tokenizer, "co-op--tx\u0301s-")[-4:]


def test_the_bytes_of_a_composed_character_share_its_place():
    """Tokens that are bytes of "é" stand for both code points that it was made of."""
    tokenizer = reference(NORMALIZERS["NFC"])
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence([pre_tokenizers.ByteLevel(add_prefix_space=False), LETTERS])
    assert ["a", "e\u0301", "e\u0301", "b"] == parts(tokenizer, "ae\u0301b")


@pytest.mark.parametrize("kind", NORMALIZERS)
@settings(max_examples=draws(60), deadline=None)
@given(text=st.text("\x01\u200b\u0301e .<", max_size=8))
@example(text="\x01e\x01\u0301")  # without both it would be another text
@example(text="<\x01e\x01\u0301<\x01")
def test_what_is_deleted_at_the_beginning_moves_nothing(tmp_path_factory, kind, text):
    """Text behind it has the tokens that it has, in the places that it has."""
    path = tmp_path_factory.mktemp("tokenizer") / "tokenizer.json"
    raw = reference(NORMALIZERS[kind], LETTERS)
    raw.add_tokens([AddedToken("<", normalized=False)])
    raw.save(str(path))
    tokenizer, text = Tokenizer(path), text + " ab"
    pieces = tokenizer.split(text)
    assert tokenizer.encode(text) == [piece.id for piece in pieces]
    assert ["a", "b"] == [text[piece.start : piece.end] for piece in pieces][-2:]


class Counted(Offsets):
    """Counts the code points that the normaliser is asked about."""

    num_asked = 0

    def _normalized(self, text):
        self.num_asked += len(text)
        return super()._normalized(text)


@pytest.mark.parametrize("text", ["\x01{}", "e\u0301{}", "a{}", "{}e\u0301", "``{}"])
@pytest.mark.parametrize("many", ["\x01", "\u0301", "-", "`", "ㅏ", "👩\u200d", "e\u0301"])
@pytest.mark.parametrize("kind", ["Replace", "Precompiled", "NFKC", "BertNormalizer"])
def test_hostile_texts_cost_no_more_than_their_length(kind, text, many):
    """Thousands of code points that no token stands for are looked at a bounded number of times each."""
    tokenizer = reference(NORMALIZERS[kind], pre_tokenizers.Split(Regex("[-`\u0301ㅏ]"), "removed"))
    text = text.format(many * 2_000)
    places, encoding = Counted(tokenizer), tokenizer.encode(text)
    places.of(text, encoding)
    assert places.num_asked < 40 * len(text)


@pytest.mark.parametrize("direction", ["right", "left"])
@pytest.mark.parametrize("unit", ["e\u0301 ", "e\u0301", "\x01e\u0301", "\x01- ", "🇦🇧", "🇦🇧🇨"])
@pytest.mark.parametrize("kind", ["Replace", "Precompiled", "NFKC", "BertNormalizer"])
def test_what_is_cut_off_is_not_looked_at(kind, unit, direction, monkeypatch):
    """A text that is cut costs no more the longer it was. What is left of it has the places that it had uncut."""
    tokenizer = reference(NORMALIZERS[kind], pre_tokenizers.Split(Regex("[-\u0301 ]"), "removed"))
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence([tokenizer.pre_tokenizer, LETTERS])
    lengths = []

    def looked_at(text):
        lengths.append(len(text))
        return _characters(text)

    monkeypatch.setattr(places_file, "_characters", looked_at)

    def cut(count):
        text = unit * count
        tokenizer.no_truncation()
        whole = Offsets(tokenizer).of(text, tokenizer.encode(text))
        tokenizer.enable_truncation(9, direction=direction)
        lengths.clear()
        cheap, encoding = Counted(tokenizer), tokenizer.encode(text)
        cheap.num_asked = 0
        found = cheap.of(text, encoding)
        # At the cut, a token may be given the rest of a character whose own token is gone.
        assert (whole[:8], whole[-8:])[direction == "left"] == (found[:8], found[-8:])[direction == "left"]
        return sum(lengths) + cheap.num_asked

    # Both odd, because in a run of flags one more is looked at where that makes the first one whole.
    assert cut(9_001) <= cut(901)


@settings(max_examples=draws(300), deadline=None)
@given(text=st.text(STARTERS + MARKS + "🇦🇧🇨\u200d\n \u0600", max_size=12))
def test_flags_are_characters_as_unicode_has_them(text):
    """Two regional indicators are one. Whatever is around them, characters begin where the library says."""
    assert _characters(text) == {first for _, (first, _) in _CHARACTERS.pre_tokenize_str(text)}


def test_a_text_of_flags_alone_costs_what_others_do():
    """The library's own expression takes 40 s of processor time over so many. Here it is a quarter of a second."""
    started = time.thread_time()
    assert 32_768 == len(_characters("🇦🇧" * 32_768))
    assert time.thread_time() - started < 5
