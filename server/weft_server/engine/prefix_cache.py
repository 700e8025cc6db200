"""What a model has read before: pieces of prompts, or whole sources, in memory of a fixed size that all lanes share."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

from weft_server.engine.prefix_index import MARK_BYTES, PrefixIndex, num_marks_of, trail_of
from weft_server.runtime.prefix_store import PrefixStore, bytes_of_place

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from collections.abc import Sequence as Many

    from weft_proto.v1 import bundle_pb2
    from weft_server.engine.prefix_index import CachedPiece, Trail
    from weft_server.telemetry.model_metrics import ModelMetrics

# A place's share of the lists, beside its states: ids, digest, entries. An upper bound.
BOOK_BYTES = 1024


class PrefixCache:
    """Keeps a piece from its second sight on, and drops what nobody has asked for the longest.

    The lock is held for work on lists only. What is copied meanwhile is marked, and stays.
    """

    def __init__(
        self, specs: Iterable[bundle_pb2.StateTensor], size: int, num_bytes: int, metrics: ModelMetrics
    ) -> None:
        specs = list(specs)
        num_marks = num_marks_of(num_bytes)
        self.place_bytes = bytes_of_place(specs, size) + BOOK_BYTES
        self.num_places = max(0, (num_bytes - MARK_BYTES * num_marks) // self.place_bytes)
        self.prefix_store = PrefixStore(specs, self.num_places, size)
        # Places up to `_num_touched` have been used, and of them these are free.
        self._free: list[int] = []
        self._num_touched = 0
        self._index = PrefixIndex(num_marks)
        self._lock = threading.Lock()
        self.metrics = metrics

    def follow(self, contents: list[bytes], salt: str) -> Trail:
        """Find the first pieces of an input, and note that the others were seen.

        The entries that are found stay until `release`.
        """
        trail = trail_of(contents, salt)
        with self._lock:
            self._index.find(trail)
            for entry in trail.entries:
                entry.num_readers += 1
            self._index.note(trail)
        return trail

    def release(self, entries: Iterable[CachedPiece]) -> None:
        """Let entries go that `follow` has found."""
        with self._lock:
            for entry in entries:
                entry.num_readers -= 1

    def keep(self, trail: Trail, num_places: int, copy: Callable[[Many[int]], None]) -> None:
        """Keep the next piece of a trail, which `copy` copies into places, and go on behind it.

        There are three cases in which no further piece of the trail is kept:

        1. Not so many places can be had, beside those of the trail itself and of what is copied now.
        2. The pieces before it are gone.
        3. Another piece has the same digest.
        """
        entry, places = None, None
        with self._lock:
            entry = self._index.match(trail)  # another lane may have kept it since
            if entry is None:
                places = self._reserve(trail, num_places)
        if places is not None:
            try:
                copy(places)
            except BaseException:
                with self._lock:
                    self._give_back(places)
                raise
            with self._lock:
                entry = self._add(trail, places)
        if entry is None:
            trail.num_wanted = len(trail.entries)
        else:
            trail.entries.append(entry)

    def _reserve(self, trail: Trail, num_places: int) -> list[int] | None:
        """Take places, and drop for them what nobody has asked for the longest. None if there are not so many."""
        if num_places > self.num_places or not self._index.has(trail.parent):
            return None
        self._index.touch(trail)
        own = set(trail.entries)
        while len(self._free) < num_places:
            if self._num_touched < self.num_places:
                self._free.append(self._num_touched)
                self._num_touched += 1
                continue
            victim = next((entry for entry in self._index.oldest_first() if not entry.num_readers), None)
            if victim is None or victim in own:
                return None
            self._index.drop(victim)
            self._give_back(victim.places)
            self.metrics.prefix_cache_evictions.inc()
        places = self._free[-num_places:]
        del self._free[-num_places:]
        self.metrics.prefix_cache_bytes.add(self.place_bytes * num_places)
        return places

    def _add(self, trail: Trail, places: list[int]) -> CachedPiece | None:
        """Add the trail's next piece, unless another lane was faster, its beginning is gone, or its digest is taken."""
        if self._index.takes(trail):
            return self._index.add(trail, places)
        self._give_back(places)
        return self._index.match(trail)

    def _give_back(self, places: list[int]) -> None:
        self._free += places
        self.metrics.prefix_cache_bytes.add(-self.place_bytes * len(places))

    def check_integrity(self) -> None:
        """Raise AssertionError unless each place is free or some entry's, and no entry has lost its beginning."""
        entries = list(self._index.oldest_first())
        held = [place for entry in entries for place in entry.places]
        assert sorted(held + self._free) == list(range(self._num_touched)), f"{self!r} lost a place. This is a bug."
        assert not any(entry.num_readers for entry in entries), f"{self!r} is read. This is a bug."
        self._index.check_integrity()

    def __repr__(self) -> str:
        num_used = self._num_touched - len(self._free)
        return f"<PrefixCache [{len(self._index)} pieces | {num_used}/{self.num_places} places used]>"
