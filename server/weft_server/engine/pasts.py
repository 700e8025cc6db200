"""What the rows of a lane ask of whatever holds their pasts: the runner, which has the states of their slots."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    import numpy as np

    from weft_server.source import Source


class Pasts(Protocol):
    """The pasts of rows, by slot; see DecodeRunner and PagedRunner."""

    def num_begun(self, source: Source) -> int:
        """How many places of its caches an encoder fills."""

    def begin(self, slot: int) -> None:
        """Start a slot for a new sequence."""

    def end(self, slot: int) -> None:
        """Let go of what a slot holds: its row has ended, or leaves it."""

    def share(self, source: int, target: int) -> None:
        """Let a slot begin with all that another one holds, which goes on too."""

    def move(self, source: int, target: int) -> None:
        """Move a slot's past into a hole."""

    def fork(self, sources: np.ndarray, targets: np.ndarray, starts: np.ndarray, stops: np.ndarray) -> None:
        """Copy rows onto other rows of their sequences, pair by pair. See States.fork."""
