"""Counts by key, whose keys strangers choose."""

import random

import pytest

from weft_server.tally import Largest, Tally


def test_who_has_nothing_takes_no_memory():
    """Neither who was asked for, nor who has given all back."""
    tally = Tally()
    tally["a"] += 3
    tally["b"] += 2
    assert ("a", 0, 5) == (tally.largest, tally["c"], tally.total())
    tally.less("a", 2)
    assert "b" == tally.largest
    tally.less("a")
    assert {"b": 2} == tally


@pytest.mark.parametrize("seed", range(20))
def test_the_largest_is_known_while_it_shrinks(seed):
    """Whatever is taken off and dropped, it is the key that has most."""
    drawn = random.Random(seed)
    weights = {str(key): drawn.randint(0, 9) for key in range(9)}
    largest = Largest(weights)
    while weights:
        key = largest.key
        assert max(weights.values()) == weights[key]
        taken = drawn.randint(0, weights[key])
        largest.take(key, taken)
        weights[key] -= taken
        if not weights[key]:
            largest.drop(key)
            del weights[key]
    assert not largest
