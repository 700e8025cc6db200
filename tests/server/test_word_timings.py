"""Laws of a transcription's words: they are the text, each has its tokens, and their columns follow each other."""

import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tokenizer_kinds import TEXTS
from weft_server.models.explainer import Explanation
from weft_server.requests.word_timings import TimedWord, by_word, columns_of, timed_words_of

KINDS = ("byte_level", "words", "word_piece")


def said(tokenizer, text, moments=()):
    """The ids of a text, its text as an answer has it, and its words."""
    ids = tokenizer.encode_framed(text)
    answer = tokenizer.decode(ids)
    return ids, answer, timed_words_of(ids, answer, tokenizer, moments)


@pytest.mark.parametrize("kind", KINDS)
@settings(max_examples=60, deadline=None)
@given(text=TEXTS)
def test_words_are_the_text(kind, request, text):
    """Nothing of it is lost or changed but its spaces. Each token is of one word at most, in their order."""
    tokenizer, _ = request.getfixturevalue(kind)
    _, answer, words = said(tokenizer, text)

    assert "".join(answer.split()) == "".join("".join(word.text for word in words).split())
    places = [place for word in words for place in word.places]
    assert sorted(set(places)) == places


@settings(max_examples=60, deadline=None)
@given(text=st.text("abñé😀.,?' \n", max_size=40))
def test_words_are_divided_by_spaces(byte_level, text):
    """Whatever the pieces are that the tokenizer makes of them, also of parts of characters."""
    tokenizer, _ = byte_level
    _, answer, words = said(tokenizer, text)

    assert answer.split() == [word.text for word in words]


def test_what_has_no_spaces_is_divided_by_tokens(byte_level):
    """In Chinese and Japanese each token is a word, unless it is a part of a character."""
    tokenizer, _ = byte_level
    ids, _, words = said(tokenizer, "日本語本語 hello")

    assert ["日本語", "本", "語", "hello"] == [word.text for word in words]
    assert len(ids) > len(words)
    assert list(range(len(ids))) == [place for word in words for place in word.places]


def test_what_is_no_text_is_of_no_word(byte_level):
    """Special tokens and moments: what they attend to is nobody's. What a stop string left out is no word either."""
    tokenizer, _ = byte_level
    hello, world = tokenizer.encode_framed("hello"), tokenizer.encode_framed(" world")
    (moment,) = tokenizer.encode_framed("a")
    ids = [0, moment, *hello, *world, moment, 1]
    words = timed_words_of(ids, "hello world", tokenizer, {moment})

    assert ["hello", "world"] == [word.text for word in words]
    assert list(range(2, 2 + len(hello) + len(world))) == [place for word in words for place in word.places]
    assert ["hello", "wo"] == [word.text for word in timed_words_of(ids, "hello wo", tokenizer, {moment})]
    assert [] == timed_words_of(ids, "", tokenizer, {moment})


def test_a_word_attends_to_what_its_tokens_do():
    """Its row is the mean of theirs."""
    weights = np.array([[1, 0, 0], [0, 1, 0], [0, 0, 1], [0.5, 0.5, 0]], np.float32)
    told = by_word(
        Explanation(weights, np.array([1, 0.5, 0, 0], np.float32)), [TimedWord("ab", (0, 1)), TimedWord("c", (3,))]
    )

    np.testing.assert_array_equal(told.weights, np.array([[0.5, 0.5, 0], [0.5, 0.5, 0]], np.float32))
    np.testing.assert_array_equal(told.source_mass, np.array([0.75, 0], np.float32))
    nothing = by_word(Explanation(weights, np.zeros(4, np.float32)), [])
    assert ((0, 3), (0,)) == (nothing.weights.shape, nothing.source_mass.shape)
    assert [] == list(columns_of(nothing.weights, 3))


def gain(weights, spans):
    """What words have by their columns."""
    even = 1 / weights.shape[1]
    return sum(float((row[start:end] - even).sum()) for row, (start, end) in zip(weights, spans, strict=True))


@pytest.mark.parametrize("seed", range(20))
def test_columns_are_the_best_there_are(seed):
    """No word begins before the one before it has ended, each has a column, and no other way has more weight."""
    random = np.random.default_rng(seed)
    weights = random.dirichlet([0.4] * 6, size=3).astype(np.float32)
    num_heard = int(random.integers(1, 7))
    found = list(columns_of(weights, num_heard))

    every = itertools.combinations_with_replacement(range(num_heard + 1), 6)
    ways = [list(zip(ends[::2], ends[1::2], strict=True)) for ends in every]
    if num_heard >= len(weights):
        ways = [spans for spans in ways if all(start < end for start, end in spans)]
    assert found in ways
    assert pytest.approx(max(gain(weights, spans) for spans in ways), abs=1e-6) == gain(weights, found)


def test_silence_is_of_no_word():
    """Columns to which nobody attends stand between the words."""
    weights = np.zeros((2, 10), np.float32)
    weights[0, 2:4], weights[1, 7:9] = 0.5, 0.5

    assert [(2, 4), (7, 9)] == list(columns_of(weights, 10))
    # What lies behind the recording's end is not heard.
    assert [(2, 4), (7, 8)] == list(columns_of(weights, 8))


def test_half_a_character_at_the_end_is_of_the_last_word(byte_level):
    """An answer may end within one. Its text has a mark for it then, and so has its last word."""
    tokenizer, _ = byte_level
    ids = tokenizer.encode_framed("a b😀")[:-1]
    answer = tokenizer.decode(ids)

    assert answer.endswith("\ufffd")
    assert answer.split() == [word.text for word in timed_words_of(ids, answer, tokenizer, ())]
