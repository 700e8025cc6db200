"""What one row has read, what it has produced, and its source: what rules look back at."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Sequence

    from weft_server.logits_processors.arrays import Ints


NO_IDS = np.empty(0, np.int64)


class History:
    """Token ids of one row. A row of a beam search gets a copy of its parent's."""

    def __init__(self, given: Sequence[int] | Ints, source: Ints = NO_IDS, room: int = 0) -> None:
        """Start with what is `given`: a prompt, or a start token and what is fed behind it.

        `source` is what the encoder reads, if those are ids. `room` is how many tokens the answer may have.
        """
        self.num_given = len(given)
        self.source = source
        self.ids = np.empty(self.num_given + room, np.int64)
        self.ids[: self.num_given] = given
        self._length = self.num_given

    @property
    def read(self) -> Ints:
        """All ids that the decoder has read or reads next: what it was given, and the answer until now."""
        return self.ids[: self._length]

    @property
    def produced(self) -> Ints:
        """The answer until now."""
        return self.ids[self.num_given : self._length]

    @property
    def num_new(self) -> int:
        """How many tokens the answer has."""
        return self._length - self.num_given

    def append(self, token: int) -> None:
        """Note the answer's next token."""
        self.ids[self._length] = token
        self._length += 1

    def fork(self) -> History:
        """Return a copy that goes its own way."""
        copy = History(self.read, self.source, len(self.ids) - self._length)
        copy.num_given = self.num_given
        return copy
