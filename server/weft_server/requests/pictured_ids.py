"""A prompt that holds pictures, as a decoder reads it: ids, what is seen in each picture, and where it stands."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from weft_proto.sight import NUM_AXES
from weft_server.source import Beside, Ids

if TYPE_CHECKING:
    from collections.abc import Sequence as Many

    from weft_server.source import PlaceGrid, Source


class SeenPicture(NamedTuple):
    """A stretch of a picture's places in a prompt: where it begins, and the digest of the file (with how it is read).

    What is read of it, its features, is [places, width]. `picture` counts the pictures of the prompt, from 0. Grids are
    told to who asks to explain. `cells` are the rows and columns that its places stand in, of a model that turns by
    them.
    """

    start: int
    digest: bytes
    features: np.ndarray
    picture: int = 0
    grids: tuple[PlaceGrid, ...] = ()
    cells: tuple[int, int] | None = None

    def within(self, start: int, stop: int) -> tuple[int, int]:
        """The part of its places that lies in [start, stop): empty where the second number is not larger."""
        return max(start, self.start), min(stop, self.start + len(self.features))


@dataclass(frozen=True, slots=True, eq=False)
class PicturedIds(Ids):
    """The token ids of a prompt that holds pictures. At each place of one stands the token of a picture.

    A decoder is fed `place_id` there, which is no token. `prompt` has the same ids, and the files of the pictures.
    """

    pictures: tuple[SeenPicture, ...]
    place_id: int
    prompt: Ids
    # Of each place, and of what stands behind the last, int64 [length + 1, 3]. None: 0. See `offsets_of`.
    offsets: np.ndarray | None = None

    @property
    def once_read(self) -> Source:
        """The prompt. Features are megabytes, and an answer may be long."""
        return self.prompt

    @property
    def picture_places(self) -> list[tuple[int, int]]:
        """See Source."""
        return [(picture.start, picture.start + len(picture.features)) for picture in self.pictures]

    @property
    def offset_behind(self) -> int:
        """See Source."""
        return 0 if self.offsets is None else int(self.offsets[-1, 0])

    def piece(self, start: int, stop: int) -> np.ndarray:
        """See Source."""
        ids = self.array[start:stop].copy()
        for picture in self.pictures:
            first, last = picture.within(start, stop)
            if first < last:
                ids[first - start : last - start] = self.place_id
        return ids

    def beside(self, start: int, stop: int) -> Beside:
        """See Source."""
        read = None
        for picture in self.pictures:
            first, last = picture.within(start, stop)
            if first < last:
                if read is None:
                    read = np.zeros((stop - start, picture.features.shape[1]), np.float32)
                read[first - start : last - start] = picture.features[first - picture.start : last - picture.start]
        return Beside(read, None if self.offsets is None else self.offsets[start:stop])

    def content(self, start: int, stop: int) -> bytes:
        """See Source. Two pictures differ by their digests, and one by where it begins."""
        parts = [self.array[start:stop].tobytes()]
        for picture in self.pictures:
            first, last = picture.within(start, stop)
            if first < last:
                parts.append(b"%d %d " % (first - start, first - picture.start) + picture.digest)
        return b"".join(parts)


def offsets_of(length: int, pictures: Many[SeenPicture]) -> np.ndarray | None:
    """Return what is added to each place of a prompt for its positions, and to what stands behind the last: 0 or less.

    int64 [length + 1, 3], as max_pixels of TilingSpec says. None: no picture has cells.
    """
    if all(picture.cells is None for picture in pictures):
        return None
    offsets = np.zeros((length + 1, NUM_AXES), np.int64)
    for picture in pictures:
        rows, columns = picture.cells or (1, len(picture.features))
        place = np.arange(rows * columns)
        positions = np.stack((place * 0, place // columns, place % columns), axis=1)
        stop = picture.start + len(place)
        offsets[picture.start : stop] += positions - place[:, None]
        offsets[stop:] += max(rows, columns) - len(place)
    return offsets
