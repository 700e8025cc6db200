"""Counts by key, whose keys strangers choose."""

from weft_server.tally import Tally


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
