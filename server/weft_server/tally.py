"""Counts by key: of callers, connections, tenants. Strangers choose the keys, so none is kept that has nothing."""

from __future__ import annotations

from collections import Counter


class Tally(Counter[str]):
    """How much each key has. What has nothing is 0, and takes no memory."""

    def less(self, key: str, number: int = 1) -> None:
        """Take off the count of a key."""
        self[key] -= number
        if not self[key]:
            del self[key]

    @property
    def largest(self) -> str:
        """The key that has most. There must be one."""
        return max(self, key=self.__getitem__)
