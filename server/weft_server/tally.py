"""Counts by key: of callers, connections, tenants. Strangers choose the keys, so none is kept that has nothing."""

from __future__ import annotations

from collections import Counter
from heapq import heapify, heappop, heappush
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping


class Tally(Counter[str]):
    """How much each key has. What has nothing is 0, and takes no memory."""

    def less(self, key: str, number: int = 1) -> None:
        """Take off the count of a key."""
        if left := self[key] - number:
            self[key] = left
        else:
            self.pop(key, None)

    @property
    def largest(self) -> str:
        """The key that has most. There must be one."""
        return max(self, key=self.__getitem__)


class Largest:
    """Who has most, while what is held is taken off. A look and a taking cost the logarithm of how many there are."""

    def __init__(self, weights: Mapping[str, float]) -> None:
        self._weights = dict(weights)
        # The largest first. What does not hold any more is passed over.
        self._heap = [(-weight, key) for key, weight in self._weights.items()]
        heapify(self._heap)

    def __bool__(self) -> bool:
        return bool(self._weights)

    @property
    def key(self) -> str:
        """The key that has most now. There must be one."""
        while self._weights.get(self._heap[0][1]) != -self._heap[0][0]:
            heappop(self._heap)
        return self._heap[0][1]

    def take(self, key: str, weight: float) -> None:
        """Take off what a key has."""
        self._weights[key] -= weight
        heappush(self._heap, (-self._weights[key], key))

    def drop(self, key: str) -> None:
        """A key has nothing more to be taken off."""
        self._weights.pop(key, None)
