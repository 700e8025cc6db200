"""Which pieces of inputs are kept, and which of them nobody has asked for the longest.

An input is a chain of pieces. A piece belongs to all that stands before it, and to the caller's salt. It is found by a
digest of them, and by comparing them: a digest alone decides nothing. What is kept of a piece is its owner's to say.
"""

from __future__ import annotations

from array import array
from collections import OrderedDict
from dataclasses import dataclass, field
from hashlib import blake2b
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

# Of the budget, one byte of so many goes to the marks of pieces that were seen, within these bounds.
BYTES_FOR_A_BYTE_OF_MARKS = 128
MIN_MARKS = 1 << 12
MAX_MARKS = 1 << 20
MARK_BYTES = 8


def num_marks_of(num_bytes: int) -> int:
    """Return how many marks an index has beside so many bytes of what is kept."""
    return min(max(MIN_MARKS, num_bytes // BYTES_FOR_A_BYTE_OF_MARKS // MARK_BYTES), MAX_MARKS)


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

    def afresh(self) -> Trail:
        """The same input, of which nothing has been found yet."""
        return Trail(self.salt, self.contents, self.digests)


class PrefixIndex:
    """The pieces that are kept, by digest, and marks of those that were seen. Threads that share it need a lock."""

    def __init__(self, num_marks: int) -> None:
        # Who was asked for the longest ago comes first. A piece comes before the one that it stands behind, always: so
        # none is left whose beginning is gone.
        self._entries: OrderedDict[bytes, CachedPiece] = OrderedDict()
        # A mark for each piece that was seen. A newer one takes the place of an older one.
        self._marks = array("Q", bytes(MARK_BYTES * num_marks))

    def __len__(self) -> int:
        return len(self._entries)

    def find(self, trail: Trail) -> None:
        """Give a trail the entries of its first pieces, as far as they are kept."""
        while len(trail.entries) < len(trail.contents) and (entry := self.match(trail)):
            trail.entries.append(entry)
        self.touch(trail)

    def note(self, trail: Trail) -> None:
        """Mark the trail's pieces that were not found as seen. It wants those kept that were seen before."""
        trail.num_wanted = len(trail.entries) + self._mark(trail.digests[len(trail.entries) :])

    def match(self, trail: Trail) -> CachedPiece | None:
        """The kept entry of the trail's next piece. By its parent, it is compared as far back as it goes."""
        index = len(trail.entries)
        entry = self._entries.get(trail.digests[index])
        if entry is None or entry.parent is not trail.parent:
            return None
        return entry if (entry.salt, entry.content) == (trail.salt, trail.contents[index]) else None

    def touch(self, trail: Trail) -> None:
        """Move the trail's entries to the end, the first of them behind all others."""
        for entry in reversed(trail.entries):
            if entry.digest in self._entries:
                self._entries.move_to_end(entry.digest)

    def has(self, entry: CachedPiece | None) -> bool:
        """Whether an entry is still kept; so is what comes before the first."""
        return entry is None or self._entries.get(entry.digest) is entry

    def takes(self, trail: Trail) -> bool:
        """Whether the trail's next piece can be added: its beginning is there, and nobody else has its digest."""
        return self.has(trail.parent) and trail.digests[len(trail.entries)] not in self._entries

    def add(self, trail: Trail, places: list[int]) -> CachedPiece:
        """Add the trail's next piece, which lies in `places`."""
        assert self.takes(trail), f"{self!r} has no room for a piece. This is a bug."
        digest = trail.digests[len(trail.entries)]
        entry = CachedPiece(digest, trail.salt, trail.parent, trail.contents[len(trail.entries)], places)
        self._entries[digest] = entry
        self.touch(trail)
        return entry

    def drop(self, entry: CachedPiece) -> None:
        """Forget an entry. None may stand behind it."""
        del self._entries[entry.digest]

    def oldest_first(self) -> Iterator[CachedPiece]:
        """Yield the entries, from the one on that nobody has asked for the longest."""
        return iter(self._entries.values())

    def check_integrity(self) -> None:
        """Raise AssertionError if an entry has lost its beginning, or would lose it first."""
        order = {entry: index for index, entry in enumerate(self._entries.values())}
        for entry, index in order.items():
            behind = entry.parent is None or order.get(entry.parent, -1) > index
            assert behind, f"{self!r} has a piece without its beginning. This is a bug."

    def __repr__(self) -> str:
        return f"<PrefixIndex [{len(self)} pieces]>"

    def _mark(self, digests: list[bytes]) -> int:
        """Mark pieces as seen. Returns how many of the first ones were seen before."""
        num_again, again = 0, True
        for digest in digests:
            place = int.from_bytes(digest[:8]) % len(self._marks)
            mark = int.from_bytes(digest[8:]) | 1  # 0 is no mark
            again = again and self._marks[place] == mark
            num_again += again
            self._marks[place] = mark
        return num_again


def trail_of(contents: list[bytes], salt: str) -> Trail:
    """Return an input of such pieces, of which nothing has been found yet."""
    return Trail(salt, contents, chain(contents, salt))


def chain(contents: Iterable[bytes], salt: str) -> list[bytes]:
    """Return a digest for each piece: of the salt, all pieces before it, and itself."""
    digests = []
    digest = blake2b(salt.encode(), digest_size=16).digest()
    for content in contents:
        digest = blake2b(digest + content, digest_size=16).digest()
        digests.append(digest)
    return digests
