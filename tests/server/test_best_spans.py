"""Which spans of a text answer best."""

import tracemalloc

import numpy as np
import pytest

from weft_server.preprocessing.question_answering import best_spans


def their_spans(starts, ends, places, max_tokens, count):
    """One span after the other, of all that there are."""
    spans = [
        (starts[first] * ends[last], first, last)
        for first in range(len(starts))
        for last in range(first, min(first + max_tokens, len(starts)))
    ]
    found, seen = [], set()
    for score, first, last in sorted(spans, key=lambda span: (-span[0], span[1], span[2])):
        place = places[first, 0], places[last, 1]
        if score > 0 and place not in seen:
            seen.add(place)
            found.append((first, last, score))
    return found[:count]


@pytest.mark.parametrize("seed", range(20))
def test_each_is_the_best_at_its_place(seed):
    """Several tokens may be one word, and then they are at one place."""
    drawn = np.random.default_rng(seed)
    words = np.sort(drawn.integers(0, 6, 12))
    places = np.stack((words * 4, words * 4 + 3), axis=1)
    starts, ends = drawn.random((2, 12))
    assert their_spans(starts, ends, places, 5, 7) == best_spans(starts, ends, places, 5, 7)


def test_one_long_word_takes_little_memory():
    """All of its tokens are at one place. Their pairs would be 512 MB."""
    places = np.tile([0, 8192], (8192, 1))
    starts = np.full(8192, 1 / 8192)
    tracemalloc.start()
    found = best_spans(starts, starts, places, 128, 20)
    _, most = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert 1 == len(found)
    assert most < 64 << 20
