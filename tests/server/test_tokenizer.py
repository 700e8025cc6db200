"""Text streams: deltas joined are the text, however tokens arrive, and nothing given is ever taken back."""

import time

import pytest
import tokenizers
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import AddedToken, decoders, models, normalizers, pre_tokenizers, processors, trainers

from weft_server.errors import BundleError
from weft_server.text_stream import TextStream
from weft_server.tokenizer import Tokenizer

CORPUS = ["hello world, we are eating bread", "¿dónde está el niño? ñandú", "日本語 と 😀 emoji 👩‍👩‍👧", "a  b\n\tc"]


def _byte_level() -> tokenizers.Tokenizer:
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


def _words() -> tokenizers.Tokenizer:
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


def _word_piece() -> tokenizers.Tokenizer:
    """BERT's: ## marks a continuation, and decoding tidies punctuation up."""
    vocab = {word: i for i, word in enumerate(["[UNK]", "hello", "wor", "##ld", ".", "do", "n't", ",", "##s"])}
    tokenizer = tokenizers.Tokenizer(models.WordPiece(vocab, unk_token="[UNK]"))
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    tokenizer.decoder = decoders.WordPiece()
    return tokenizer


def _loaded(tmp_path_factory, reference: tokenizers.Tokenizer) -> tuple[Tokenizer, tokenizers.Tokenizer]:
    path = tmp_path_factory.mktemp("tokenizer") / "tokenizer.json"
    reference.save(str(path))
    return Tokenizer(path), reference


@pytest.fixture(scope="module")
def byte_level(tmp_path_factory):
    """Ours and the library's own, of the same file."""
    return _loaded(tmp_path_factory, _byte_level())


@pytest.fixture(scope="module")
def words(tmp_path_factory):
    """Ours and the library's own, of the same file."""
    return _loaded(tmp_path_factory, _words())


@pytest.fixture(scope="module")
def word_piece(tmp_path_factory):
    """Ours and the library's own, of the same file."""
    return _loaded(tmp_path_factory, _word_piece())


def _stream(tokenizer, ids, stop=(), chunk=1):
    """Push ids in chunks; the stream and the deltas it gave, empty ones left out."""
    stream = TextStream(tokenizer, stop)
    deltas = [stream.push(ids[at : at + chunk]) for at in range(0, len(ids), chunk)]
    deltas.append(stream.finish())
    return stream, deltas


TEXTS = st.text(st.one_of(st.sampled_from("ab ñ日本😀👩‍👧?¿\n�"), st.characters(exclude_categories=["Cs"])))
IDS = st.lists(st.integers(0, 340), max_size=40)


@settings(max_examples=300, deadline=None)
@given(ids=IDS, chunk=st.integers(1, 7))
def test_byte_level_streams_equal_whole_decoding(byte_level, ids, chunk):
    """Any byte-level tokens, broken characters and unknown ids too: deltas joined are the library's own decoding."""
    tokenizer, reference = byte_level
    stream, deltas = _stream(tokenizer, ids, chunk=chunk)
    assert reference.decode(ids) == "".join(deltas) == stream.text == tokenizer.decode(ids)
    assert (len(ids), False) == (stream.tokens_used, stream.stopped)


@settings(max_examples=300, deadline=None)
@given(data=st.binary(max_size=24))
def test_every_byte_sequence_decodes_as_utf8_with_replacements(byte_level, data):
    """A token for each byte: the text is the bytes as UTF-8, what is invalid replaced."""
    tokenizer, _ = byte_level
    token_of = {raw: id_ for id_, raw in tokenizer.vocabulary.raw.items() if len(raw) == 1}
    ids = [token_of[bytes([byte])] for byte in data]
    assert data.decode(errors="replace") == "".join(_stream(tokenizer, ids)[1])


@settings(max_examples=300, deadline=None)
@given(text=TEXTS, chunk=st.integers(1, 7))
def test_encoded_text_comes_back(byte_level, words, text, chunk):
    """Encoded text streams back as the library decodes it; byte-level gives the very text."""
    for tokenizer, reference in (byte_level, words):
        ids = tokenizer.encode(text)
        assert reference.decode(ids) == "".join(_stream(tokenizer, ids, chunk=chunk)[1])
    assert text == byte_level[0].decode(byte_level[0].encode(text))


@settings(max_examples=300, deadline=None)
@given(ids=st.lists(st.integers(0, 11), max_size=60), chunk=st.integers(1, 7))
def test_spaces_that_later_tokens_swallow_are_never_given(words, word_piece, ids, chunk):
    """Decoders that rewrite spaces before the next token: deltas joined still are the library's own decoding."""
    for tokenizer, reference in (words, word_piece):
        assert reference.decode(ids) == "".join(_stream(tokenizer, ids, chunk=chunk)[1])


@settings(max_examples=200, deadline=None)
@given(ids=st.lists(st.integers(0, 267), max_size=40), chunk=st.integers(2, 7))
def test_chunks_change_nothing(words, ids, chunk):
    """Any tokens, in any chunks, with any broken bytes: the text is the same as one token at a time."""
    tokenizer, _ = words
    assert _stream(tokenizer, ids)[0].text == _stream(tokenizer, ids, chunk=chunk)[0].text


@settings(max_examples=300, deadline=None)
@given(ids=st.lists(st.integers(0, 267), max_size=70))
def test_a_whole_answer_is_what_its_stream_gives(byte_level, words, word_piece, ids):
    """Decoded by windows or by tokens, broken bytes, special tokens and swallowed spaces included: the same text."""
    for tokenizer in (byte_level[0], words[0], word_piece[0]):
        own = [id_ % tokenizer.num_ids for id_ in ids]
        assert _stream(tokenizer, own)[0].text == tokenizer.decode(own)


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


STOPS = st.lists(st.text("ab ñ😀\n", min_size=1, max_size=4), min_size=1, max_size=4).map(tuple)


@settings(max_examples=500, deadline=None)
@given(text=st.text("ab ñ😀\n", max_size=30), stop=STOPS, chunk=st.integers(1, 7))
def test_the_text_ends_before_the_first_stop_string(byte_level, text, stop, chunk):
    """Deltas joined are the text up to the token that completes a stop string, cut before the earliest one in it."""
    tokenizer, reference = byte_level
    ids = tokenizer.encode(text)
    stream, deltas = _stream(tokenizer, ids, stop, chunk)
    expected, used = text, len(ids)
    for num in range(1, len(ids) + 1):
        so_far = reference.decode(ids[:num])
        found = [so_far.find(s) for s in stop if s in so_far]
        if found:
            expected, used = so_far[: min(found)], num
            break
    assert expected == "".join(deltas) == stream.text
    assert used == stream.tokens_used
    assert any(s in text for s in stop) == stream.stopped


def test_deltas_hold_whole_characters_as_soon_as_they_are_whole(byte_level):
    """A character of several tokens comes with its last one, and text that may begin a stop string waits."""
    tokenizer, _ = byte_level
    token_of = {raw: id_ for id_, raw in tokenizer.vocabulary.raw.items() if len(raw) == 1}
    ids = [token_of[bytes([byte])] for byte in "é😀\n\n".encode()]
    stream = TextStream(tokenizer, ("\n\n",))
    assert ["", "é", "", "", "", "😀", "", ""] == [stream.push([id_]) for id_ in ids]
    assert ("é😀", True, 8) == (stream.text, stream.stopped, stream.tokens_used)
    assert "" == stream.push(ids) == stream.finish()


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
    reference = _byte_level()
    reference.enable_truncation(3)
    reference.enable_padding(length=50)
    reference.save(str(tmp_path / "tokenizer.json"))
    text = "hello world " * 5
    assert text == (tokenizer := Tokenizer(tmp_path / "tokenizer.json")).decode(tokenizer.encode(text))
    assert 1 == tokenizer.encode("a")[-1]


@pytest.mark.parametrize("content", ["", "{}", "[1]"])
def test_no_tokenizer_is_a_bundle_error(tmp_path, content):
    """A file that is no tokenizer refuses the bundle with its name."""
    path = tmp_path / "tokenizer.json"
    path.write_text(content)
    with pytest.raises(BundleError, match=r"tokenizer\.json is no tokenizer"):
        Tokenizer(path)


@pytest.mark.parametrize(
    ("kind", "token"), [("byte_level", "Ġ"), ("byte_level", "ð"), ("words", "▁"), ("words", "▁a▁")]
)
def test_a_stream_is_not_quadratic(request, kind, token):
    """Tokens that are held back for long cost no more each when there are many of them."""
    tokenizer, reference = request.getfixturevalue(kind)

    def seconds(num: int) -> float:
        started = time.process_time()
        _stream(tokenizer, [reference.token_to_id(token)] * num + [reference.token_to_id("a")])
        return time.process_time() - started

    seconds(1000)
    # Quadratic would be 64 times as long for 8 times as many.
    assert seconds(32_000) < 24 * max(seconds(4000), 0.002)


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


class Panic(BaseException):
    """What the library's own panics are: no Exception."""


def test_a_panic_of_the_library_is_a_bundle_error(tmp_path, monkeypatch):
    """A file that makes it panic refuses its bundle, and keeps no other model from loading."""

    def panics(path):
        raise Panic("index out of bounds")

    monkeypatch.setattr(tokenizers.Tokenizer, "from_file", panics)
    with pytest.raises(BundleError, match="index out of bounds"):
        Tokenizer(tmp_path / "tokenizer.json")
