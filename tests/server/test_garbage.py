"""What lasts as long as a model is no work for later searches for garbage."""

import gc
import weakref

import pytest

from weft_server.process.garbage import keep_objects


class Cycle:
    """Holds itself, so only a search frees it."""

    def __init__(self):
        self.itself = self


@pytest.fixture(autouse=True)
def as_before():
    """What a test kept is searched again afterwards."""
    yield
    gc.unfreeze()


def test_later_searches_skip_what_was_kept():
    """A search goes through what came after, and nothing else."""
    kept = Cycle()
    keep_objects()
    new = Cycle()
    searched = {id(each) for each in gc.get_objects()}
    assert id(new) in searched
    assert id(kept) not in searched


def test_what_nobody_holds_is_freed():
    """Cycles are freed by the call itself, also those that an earlier call kept."""
    first = Cycle()
    keep_objects()
    watched = weakref.ref(first), weakref.ref(second := Cycle())
    del first, second
    keep_objects()
    assert [None, None] == [each() for each in watched]
