"""The prefix cache by itself: what is kept, what goes, what is never taken for something else."""

import random
import threading
import tracemalloc

import numpy as np
import pytest

from weft_proto.v1 import bundle_pb2
from weft_server.engine import prefix_index
from weft_server.engine.prefix_cache import PrefixCache
from weft_server.engine.prefix_index import MARK_BYTES, MIN_MARKS
from weft_server.runtime.states import HostStates
from weft_server.telemetry.metrics import Metrics

SIZE = 4
SPEC = bundle_pb2.StateTensor(
    kind=bundle_pb2.STATE_KIND_KV_CACHE,
    past="past",
    present="present",
    data_type=bundle_pb2.DATA_TYPE_FLOAT32,
    shape=[2, 64, 8],
    length_axis=1,
)


class Cached:
    """A cache of so many places, and a slot whose state says which ids it was written for."""

    def __init__(self, num_places=8):
        self.metrics = Metrics().for_model("m", 1, "t")
        one = PrefixCache([SPEC], SIZE, 1 << 20, self.metrics).place_bytes
        num_bytes = MIN_MARKS * MARK_BYTES + num_places * one
        self.cache = PrefixCache([SPEC], SIZE, num_bytes, self.metrics)
        assert num_places == self.cache.num_places
        self.states = HostStates([SPEC], 1)

    def pieces(self, ids):
        """Ids as the cache takes them."""
        return [np.array(ids[start : start + SIZE]).tobytes() for start in range(0, len(ids) - SIZE + 1, SIZE)]

    def ask(self, ids, salt=""):
        """Read ids as a lane does; how many pieces were found, each of which must hold what was written for it."""
        trail = self.cache.follow(self.pieces(ids), salt)
        found = len(trail.entries)
        past = self.states.states[0].past(0)
        past[:] = -1
        places = [entry.places[0] for entry in trail.entries]
        self.cache.prefix_store.give(places, self.states, 0, 0, found * SIZE)
        self.cache.release(trail.entries)
        expected = np.array([hash((salt, *ids[: index + 1])) % 9973 for index in range(len(ids))], np.float32)
        assert (past[0, :, : found * SIZE] == expected[: found * SIZE, None]).all()
        past[0, :, : len(ids)] = expected[:, None]
        while trail.wants_more:
            start = SIZE * len(trail.entries)
            self.cache.keep(
                trail, 1, lambda places, at=start: self.cache.prefix_store.keep(places, self.states, 0, at, at + SIZE)
            )
        self.cache.check_integrity()
        return found


def test_a_piece_is_kept_from_its_second_sight_on():
    """The first sight leaves a mark, the second a copy, the third finds it; what differs behind it does not matter."""
    cached, ids = Cached(), list(range(10))
    assert [0, 0, 2, 2] == [cached.ask(ids) for _ in range(4)]
    assert 1 == cached.ask([*ids[:5], 90, 91, 92, 93])
    assert 0 == cached.ask([90, *ids[1:]])


def test_callers_of_another_salt_find_nothing():
    """Each salt has a cache of its own, as far as anybody can see."""
    cached, ids = Cached(), list(range(8))
    for salt in ("", "a", "b"):
        assert [0, 0, 2] == [cached.ask(ids, salt) for _ in range(3)]


def test_what_nobody_asked_for_the_longest_goes_first():
    """A piece never goes before those that stand behind it, so nothing is left without its beginning."""
    cached = Cached(4)
    first, second = list(range(12)), [*range(4), 20, 21, 22, 23]
    for ids in (first, first, second, second):
        cached.ask(ids)
    assert [2, 3, 2] == [cached.ask(second), cached.ask(first), cached.ask(second)]
    for _ in range(2):
        cached.ask(list(range(50, 54)))
    assert 1 == cached.metrics.prefix_cache_evictions.value
    assert [2, 2] == [cached.ask(second), cached.ask(first)]


def test_a_prompt_longer_than_the_cache_keeps_its_beginning():
    """It drops all others, and none of its own pieces."""
    cached, long = Cached(4), list(range(100, 140))
    for _ in range(2):
        cached.ask(list(range(8)))
    assert [0, 0, 4, 4] == [cached.ask(long) for _ in range(4)]


@pytest.mark.parametrize("poison", [lambda _: b"\1" * 16, lambda content: content[:16]])
def test_equal_digests_never_give_the_wrong_piece(monkeypatch, poison):
    """If digests said nothing, or not what stood before, a hit would still be what was written for this very chain."""
    monkeypatch.setattr(prefix_index, "chain", lambda contents, _: [poison(content) for content in contents])
    cached, rng, found = Cached(4), random.Random(0), []
    for _ in range(300):
        pieces = [[rng.randrange(3)] * SIZE for _ in range(rng.randrange(1, 5))]
        found.append(cached.ask([token for piece in pieces for token in piece], rng.choice("ab")))
    assert 0 in found
    assert 1 in found


def test_a_mark_that_is_not_its_own_only_keeps_a_piece_early(monkeypatch):
    """The marks decide what is kept, never what is found."""
    monkeypatch.setattr(prefix_index.PrefixIndex, "_mark", lambda _, digests: len(digests))
    cached = Cached()
    assert [0, 2] == [cached.ask(list(range(8))) for _ in range(2)]


def test_many_different_prompts_take_no_more_than_the_budget():
    """20,000 prompts, each sent twice, one after the other: memory stays below the budget."""
    ids, metrics = np.random.default_rng(0).integers(0, 1 << 40, (20_000, 32)), Metrics().for_model("m", 1, "t")
    tracemalloc.start()
    try:
        before, _ = tracemalloc.get_traced_memory()
        cache = PrefixCache([SPEC], 32, 1 << 20, metrics)
        for row in ids:
            for _ in range(2):
                trail = cache.follow([row.tobytes()], f"{row[0] % 7:064}")
                cache.release(trail.entries)
                if trail.wants_more:
                    cache.keep(trail, 1, lambda places: None)
        after, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()

    assert cache.num_places > 100
    assert after - before < 1 << 20
    cache.check_integrity()


def test_a_copy_that_fails_leaves_no_place_behind():
    """The error goes on to the lane, and the piece can be kept the next time."""
    cached, ids = Cached(), list(range(8))
    cached.ask(ids)
    trail = cached.cache.follow(cached.pieces(ids), "")
    with pytest.raises(ZeroDivisionError):
        cached.cache.keep(trail, 1, lambda _: 1 // 0)
    cached.cache.check_integrity()
    assert [0, 2] == [cached.ask(ids) for _ in range(2)]


def test_what_a_lane_copies_stays():
    """An entry that was found is not dropped for another before it is released."""
    cached = Cached(2)
    for ids in ([1] * 4, [2] * 4):
        cached.ask(ids)
        cached.ask(ids)
    trail = cached.cache.follow(cached.pieces([1] * 4), "")
    later = cached.cache.follow(cached.pieces([3] * 8), "")
    later.num_wanted = 2
    cached.cache.keep(later, 1, lambda _: None)
    cached.cache.keep(later, 1, lambda _: None)
    assert (1, 1) == (len(later.entries), later.num_wanted)
    cached.cache.release(trail.entries)
    assert [1, 0] == [cached.ask([1] * 4), cached.ask([2] * 4)]


def test_a_piece_whose_beginning_goes_while_it_is_copied_is_not_kept():
    """Another lane has dropped the piece before it: nobody could find it. Its place is free again."""
    cached, other = Cached(2), [2] * 4
    cached.ask(other)
    trail = cached.cache.follow(cached.pieces([1] * 8), "")
    trail.num_wanted = 2
    cached.cache.keep(trail, 1, lambda _: None)
    cached.cache.keep(trail, 1, lambda _: cached.cache.keep(cached.cache.follow(cached.pieces(other), ""), 1, len))
    cached.cache.check_integrity()
    assert (1, 1) == (len(trail.entries), trail.num_wanted)
    assert 1 == cached.metrics.prefix_cache_evictions.value


def test_lanes_share_it_without_harm():
    """Threads that ask for common beginnings at once only ever get what was written for these ids."""
    shared, errors = Cached(16), []

    def lane(seed):
        mine, rng = Cached(16), random.Random(seed)
        mine.cache, mine.cache.check_integrity = shared.cache, lambda: None
        try:
            for _ in range(400):
                start = rng.randrange(6)
                mine.ask([start] * 8 + [rng.randrange(3) for _ in range(8)])
        except BaseException as error:  # noqa: BLE001 - handed to the test
            errors.append(error)

    threads = [threading.Thread(target=lane, args=(seed,)) for seed in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    del shared.cache.check_integrity
    shared.cache.check_integrity()
    assert not errors
    assert shared.metrics.prefix_cache_evictions.value > 10
