"""The words of a transcription: which tokens say each, and which columns of its attention."""

from __future__ import annotations

import unicodedata
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from weft_server.models.explainer import Explanation
from weft_server.preprocessing.detokenizer import Detokenizer

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator
    from collections.abc import Sequence as Many

    from numpy.typing import NDArray

    from weft_server.preprocessing.tokenizer import Tokenizer

# What the names of characters begin with that are written without spaces.
_NO_SPACES = ("CJK", "HIRAGANA", "KATAKANA")


class TimedWord(NamedTuple):
    """A word, and the places in the answer of the tokens that say it."""

    text: str
    places: tuple[int, ...]


def timed_words_of(token_ids: Many[int], text: str, tokenizer: Tokenizer, moments: Collection[int]) -> list[TimedWord]:
    """Return the words of an answer, which are divided by spaces. `text` is what is left of it before a stop string.

    In Chinese and Japanese each token is a word. Special tokens and `moments` are of no word.
    """
    places = [
        place
        for place, token_id in enumerate(token_ids)
        if token_id not in moments and tokenizer.vocabulary.is_text(token_id)
    ]
    parts = _parts([token_ids[place] for place in places], tokenizer)
    said = "".join(parts)[: len(text)]
    words: list[TimedWord] = []
    waiting: tuple[int, ...] = ()
    start = end = 0
    for place, part in zip(places, parts, strict=True):
        start, end = end, end + len(part)
        new = said[start:end]
        # A token of a part of a character, or of a space, goes with the next one.
        waiting += (place,)
        if not new.strip():
            continue
        first = end - len(part.lstrip())
        if words and not _begins(said, first):
            before = words.pop()
            words.append(TimedWord(before.text + new.rstrip(), before.places + waiting))
        else:
            words.append(TimedWord(new.strip(), waiting))
        waiting = ()
    return words


def _parts(token_ids: Many[int], tokenizer: Tokenizer) -> list[str]:
    """Return the text that each token adds."""
    detokenizer = Detokenizer(tokenizer.vocabulary)
    parts = [detokenizer.step(token_id) for token_id in token_ids]
    if parts:
        parts[-1] += detokenizer.finish()
    return parts


def _begins(text: str, place: int) -> bool:
    """Whether a word begins with the character at a place."""
    before = text[place - 1 : place]
    return before.isspace() or any(unicodedata.name(each, "").startswith(_NO_SPACES) for each in before + text[place])


def by_word(explanation: Explanation, words: Many[TimedWord]) -> Explanation:
    """Return what each word attended to: the mean of what its tokens did."""

    def means(rows: NDArray[np.float32]) -> NDArray[np.float32]:
        return np.array([rows[list(word.places)].mean(axis=0) for word in words], np.float32).reshape(
            len(words), *rows.shape[1:]
        )

    return Explanation(means(explanation.weights), means(explanation.source_mass))


def columns_of(weights: NDArray[np.float32], num_heard: int) -> Iterator[tuple[int, int]]:
    """Yield the columns [start, end) of each row of weights [words, columns], of the first `num_heard` columns.

    Words follow each other, and there may be silence between them. Of all ways to say so this is the one by which words
    have the most weight, where each column of a word costs the even share of a row. So a word that attends to nothing
    in particular has few columns. It has one at least, unless there are more words than columns.
    """
    num_words, width = weights.shape
    even, least = 1 / width, int(num_words <= num_heard)
    # The most that the words so far have, the last of which ends at a column or before it.
    best = np.zeros(num_heard + 1)
    ways = []
    for row in weights[:, :num_heard].astype(np.float64):
        so_far = np.concatenate(([0.0], np.cumsum(row - even)))
        without = best - so_far
        starts = _best_until(without)[: len(without) - least]
        has = np.concatenate(([-np.inf] * least, without[starts])) + so_far
        ends = _best_until(has)
        best = has[ends]
        ways.append((starts, ends))
    found, at = [], num_heard
    for starts, ends in reversed(ways):
        end = int(ends[at])
        at = int(starts[end - least])
        found.append((at, end))
    yield from reversed(found)


def _best_until(values: NDArray[np.float64]) -> NDArray[np.intp]:
    """Return for each place where the largest value up to it is, the first of equal ones."""
    largest = np.maximum.accumulate(values)
    is_new = np.concatenate(([True], values[1:] > largest[:-1]))
    return np.maximum.accumulate(np.where(is_new, np.arange(len(values)), 0))
