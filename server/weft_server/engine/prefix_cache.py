"""What a model has read before: pieces of prompts, or whole sources, in memory of a fixed size that all lanes share.

An input is a chain of pieces. A piece belongs to all that stands before it, and to the caller's salt. It is found by a
digest of them, and by comparing them: a digest alone decides nothing.
"""

from __future__ import annotations

import threading
from array import array
from collections import OrderedDict
from dataclasses import dataclass, field
from hashlib import blake2b
from typing import TYPE_CHECKING

from weft_server.runtime.prefix_store import PrefixStore, bytes_of_place

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from collections.abc import Sequence as Many

    from weft_proto.v1 import bundle_pb2
    from weft_server.telemetry.model_metrics import ModelMetrics

# A place's share of the lists, beside its states: ids, digest, entries. An upper bound.
BOOK_BYTES = 1024
# Of the budget, one byte of so many goes to the marks of pieces that were seen, within these bounds.
BYTES_FOR_A_BYTE_OF_MARKS = 128
MIN_MARKS = 1 << 12
MAX_MARKS = 1 << 20
MARK_BYTES = 8


@dataclass(slots=True, eq=False)
class CachedPiece:
    """A piece that is kept. It goes before the pieces that it stands behind."""

    digest: bytes
    salt: str
    parent: CachedPiece | None
    content: bytes
    places: list[int]
    # Lanes that copy it now. It must not go meanwhile.
    num_readers: int = 0


@dataclass(slots=True)
class Trail:
    """One input in the cache. Its lane has it while the input is read."""

    salt: str
    contents: list[bytes]
    digests: list[bytes]
    # Of the first pieces: those that were found, and those that have been kept since.
    entries: list[CachedPiece] = field(default_factory=list)
    # Pieces before this one are kept once they are read.
    num_wanted: int = 0

    @property
    def wants_more(self) -> bool:
        """Whether its next piece is to be kept."""
        return len(self.entries) < self.num_wanted

    @property
    def parent(self) -> CachedPiece | None:
        """The piece before the next one."""
        return self.entries[-1] if self.entries else None


class PrefixCache:
    """Keeps a piece from its second sight on, and drops what nobody has asked for the longest.

    The lock is held for work on lists only. What is copied meanwhile is marked, and stays.
    """

    def __init__(
        self, specs: Iterable[bundle_pb2.StateTensor], size: int, num_bytes: int, metrics: ModelMetrics
    ) -> None:
        specs = list(specs)
        num_marks = min(max(MIN_MARKS, num_bytes // BYTES_FOR_A_BYTE_OF_MARKS // MARK_BYTES), MAX_MARKS)
        self.place_bytes = bytes_of_place(specs, size) + BOOK_BYTES
        self.num_places = max(0, (num_bytes - MARK_BYTES * num_marks) // self.place_bytes)
        self.prefix_store = PrefixStore(specs, self.num_places, size)
        # Places up to `_num_touched` have been used, and of them these are free.
        self._free: list[int] = []
        self._num_touched = 0
        # Who was asked for the longest ago comes first. A piece comes before the one that it stands behind, always: so
        # none is left whose beginning is gone.
        self._entries: OrderedDict[bytes, CachedPiece] = OrderedDict()
        # A mark for each piece that was seen. A newer one takes the place of an older one.
        self._marks = array("Q", bytes(MARK_BYTES * num_marks))
        self._lock = threading.Lock()
        self.metrics = metrics

    def follow(self, contents: list[bytes], salt: str) -> Trail:
        """Find the first pieces of an input, and note that the others were seen.

        The entries that are found stay until `release`.
        """
        trail = Trail(salt, contents, chain(contents, salt))
        with self._lock:
            while len(trail.entries) < len(contents) and (entry := self._match(trail)):
                trail.entries.append(entry)
            self._touch(trail)
            for entry in trail.entries:
                entry.num_readers += 1
            trail.num_wanted = len(trail.entries) + self._note(trail.digests[len(trail.entries) :])
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
            entry = self._match(trail)  # another lane may have kept it since
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

    def _match(self, trail: Trail) -> CachedPiece | None:
        """The kept entry of the trail's next piece. By its parent, it is compared as far back as it goes."""
        index = len(trail.entries)
        entry = self._entries.get(trail.digests[index])
        if entry is None or entry.parent is not trail.parent:
            return None
        return entry if (entry.salt, entry.content) == (trail.salt, trail.contents[index]) else None

    def _touch(self, trail: Trail) -> None:
        """Move the trail's entries to the end, the first of them behind all others."""
        for entry in reversed(trail.entries):
            if entry.digest in self._entries:
                self._entries.move_to_end(entry.digest)

    def _note(self, digests: list[bytes]) -> int:
        """Mark pieces as seen. Returns how many of the first ones were seen before."""
        num_again, again = 0, True
        for digest in digests:
            place = int.from_bytes(digest[:8]) % len(self._marks)
            mark = int.from_bytes(digest[8:]) | 1  # 0 is no mark
            again = again and self._marks[place] == mark
            num_again += again
            self._marks[place] = mark
        return num_again

    def _has(self, entry: CachedPiece | None) -> bool:
        """Whether an entry is still kept; so is what comes before the first."""
        return entry is None or self._entries.get(entry.digest) is entry

    def _reserve(self, trail: Trail, num_places: int) -> list[int] | None:
        """Take places, and drop for them what nobody has asked for the longest. None if there are not so many."""
        if num_places > self.num_places or not self._has(trail.parent):
            return None
        self._touch(trail)
        own = set(trail.entries)
        while len(self._free) < num_places:
            if self._num_touched < self.num_places:
                self._free.append(self._num_touched)
                self._num_touched += 1
                continue
            victim = next((entry for entry in self._entries.values() if not entry.num_readers), None)
            if victim is None or victim in own:
                return None
            del self._entries[victim.digest]
            self._free += victim.places
            self.metrics.prefix_cache_evictions.inc()
        places = self._free[-num_places:]
        del self._free[-num_places:]
        self._count_bytes()
        return places

    def _add(self, trail: Trail, places: list[int]) -> CachedPiece | None:
        """Add the trail's next piece, unless another lane was faster, its beginning is gone, or its digest is taken."""
        digest = trail.digests[len(trail.entries)]
        if digest in self._entries or not self._has(trail.parent):
            self._give_back(places)
            return self._match(trail)
        entry = CachedPiece(digest, trail.salt, trail.parent, trail.contents[len(trail.entries)], places)
        self._entries[digest] = entry
        self._touch(trail)
        return entry

    def _give_back(self, places: list[int]) -> None:
        self._free += places
        self._count_bytes()

    def _count_bytes(self) -> None:
        self.metrics.prefix_cache_bytes = self.place_bytes * (self._num_touched - len(self._free))

    def check_integrity(self) -> None:
        """Raise AssertionError unless each place is free or some entry's, and no entry has lost its beginning."""
        held = [place for entry in self._entries.values() for place in entry.places]
        assert sorted(held + self._free) == list(range(self._num_touched)), f"{self!r} lost a place. This is a bug."
        order = {entry: index for index, entry in enumerate(self._entries.values())}
        for entry, index in order.items():
            assert entry.num_readers == 0, f"{self!r} is read. This is a bug."
            behind = entry.parent is None or order.get(entry.parent, -1) > index
            assert behind, f"{self!r} has a piece without its beginning. This is a bug."

    def __repr__(self) -> str:
        num_used = self._num_touched - len(self._free)
        return f"<PrefixCache [{len(self._entries)} pieces | {num_used}/{self.num_places} places used]>"


def chain(contents: Iterable[bytes], salt: str) -> list[bytes]:
    """Return a digest for each piece: of the salt, all pieces before it, and itself."""
    digests = []
    digest = blake2b(salt.encode(), digest_size=16).digest()
    for content in contents:
        digest = blake2b(digest + content, digest_size=16).digest()
        digests.append(digest)
    return digests
