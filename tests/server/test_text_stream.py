"""Text streams: deltas joined are the text, however tokens arrive, and nothing given is ever taken back."""

import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from few import draws
from tokenizer_kinds import TEXTS
from weft_server.preprocessing.text_stream import TextStream


def _stream(tokenizer, ids, stop=(), chunk=1):
    """Push ids in chunks; the stream and the deltas it gave, empty ones left out."""
    stream = TextStream(tokenizer, stop)
    deltas = [stream.push(ids[at : at + chunk]) for at in range(0, len(ids), chunk)]
    deltas.append(stream.finish())
    return stream, deltas


IDS = st.lists(st.integers(0, 340), max_size=40)


@settings(max_examples=draws(300), deadline=None)
@given(ids=IDS, chunk=st.integers(1, 7))
def test_byte_level_streams_equal_whole_decoding(byte_level, ids, chunk):
    """Any byte-level tokens, broken characters and unknown ids too: deltas joined are the library's own decoding."""
    tokenizer, reference = byte_level
    stream, deltas = _stream(tokenizer, ids, chunk=chunk)
    assert reference.decode(ids) == "".join(deltas) == stream.text == tokenizer.decode(ids)
    assert (len(ids), False) == (stream.tokens_used, stream.stopped)


@settings(max_examples=draws(300), deadline=None)
@given(data=st.binary(max_size=24))
def test_every_byte_sequence_decodes_as_utf8_with_replacements(byte_level, data):
    """A token for each byte: the text is the bytes as UTF-8, what is invalid replaced."""
    tokenizer, _ = byte_level
    token_of = {raw: id_ for id_, raw in tokenizer.vocabulary.raw.items() if len(raw) == 1}
    ids = [token_of[bytes([byte])] for byte in data]
    assert data.decode(errors="replace") == "".join(_stream(tokenizer, ids)[1])


@settings(max_examples=draws(300), deadline=None)
@given(text=TEXTS, chunk=st.integers(1, 7))
def test_encoded_text_comes_back(byte_level, words, text, chunk):
    """Encoded text streams back as the library decodes it; byte-level gives the very text."""
    for tokenizer, reference in (byte_level, words):
        ids = tokenizer.encode(text)
        assert reference.decode(ids) == "".join(_stream(tokenizer, ids, chunk=chunk)[1])
    assert text == byte_level[0].decode(byte_level[0].encode(text))


@settings(max_examples=draws(300), deadline=None)
@given(ids=st.lists(st.integers(0, 11), max_size=60), chunk=st.integers(1, 7))
def test_spaces_that_later_tokens_swallow_are_never_given(words, word_piece, ids, chunk):
    """Decoders that rewrite spaces before the next token: deltas joined still are the library's own decoding."""
    for tokenizer, reference in (words, word_piece):
        assert reference.decode(ids) == "".join(_stream(tokenizer, ids, chunk=chunk)[1])


@settings(max_examples=draws(200), deadline=None)
@given(ids=st.lists(st.integers(0, 267), max_size=40), chunk=st.integers(2, 7))
def test_chunks_change_nothing(words, ids, chunk):
    """Any tokens, in any chunks, with any broken bytes: the text is the same as one token at a time."""
    tokenizer, _ = words
    assert _stream(tokenizer, ids)[0].text == _stream(tokenizer, ids, chunk=chunk)[0].text


@settings(max_examples=draws(300), deadline=None)
@given(ids=st.lists(st.integers(0, 267), max_size=70))
def test_a_whole_answer_is_what_its_stream_gives(byte_level, words, word_piece, ids):
    """Decoded by windows or by tokens, broken bytes, special tokens and swallowed spaces included: the same text."""
    for tokenizer in (byte_level[0], words[0], word_piece[0]):
        own = [id_ % tokenizer.num_ids for id_ in ids]
        assert _stream(tokenizer, own)[0].text == tokenizer.decode(own)


STOPS = st.lists(st.text("ab ñ😀\n", min_size=1, max_size=4), min_size=1, max_size=4).map(tuple)


@settings(max_examples=draws(500), deadline=None)
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
