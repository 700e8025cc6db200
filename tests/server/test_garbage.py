"""What lasts as long as a model is no work for later searches for garbage."""

import asyncio
import gc
import weakref

import pytest

from lifecycles import Keeping, repository_of
from weft_server.process.garbage import keep_objects, search_all


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


def test_a_cycle_that_a_model_leaves_is_freed_by_any_later_search():
    """It was kept while the model was there."""
    kept = Cycle()
    keep_objects()
    watched = weakref.ref(kept)
    del kept
    search_all()
    gc.collect()
    assert watched() is None


def test_when_a_model_goes_all_is_searched_again(tiny_repository, tmp_path):
    """Nothing is kept from the search then."""

    async def run():
        async with Keeping(repository_of(tmp_path, tiny_repository / "tiny-text" / "1", 1)) as kept:
            await kept.lifecycle.load("m", 1)
            keep_objects()
            assert gc.get_freeze_count()
            await kept.lifecycle.unload("m", 1)
            assert 0 == gc.get_freeze_count()

    asyncio.run(run())
