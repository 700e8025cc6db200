"""Ends what runs for a model that loads, from another thread: runs of graphs, graphs that are opened, processes."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable


class Halt:
    """One for each load. Any thread may ask."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._ends: list[Callable[[], object]] = []
        self._is_called = False

    @property
    def is_called(self) -> bool:
        """Whether all is to end."""
        return self._is_called

    def watch(self, end: Callable[[], object]) -> None:
        """Let `end` be called when all is to end. If that has been said, it is called now."""
        with self._lock:
            self._ends.append(end)
            if self._is_called:
                end()

    def call(self) -> None:
        """End all, now and from now on."""
        with self._lock:
            self._is_called = True
            for end in self._ends:
                end()
