"""Bytes that requests hold, of all models together: a model more is no room more."""

from __future__ import annotations

import threading
import weakref
from typing import TYPE_CHECKING

from weft_server.errors import Overloaded
from weft_server.tally import Tally

if TYPE_CHECKING:
    from weft_server.logits_processors.constraint import Constraint


class HeldBytes:
    """Counts them. Any thread may use it."""

    def __init__(self, what: str, most: int, most_of_tenant: int) -> None:
        """At most `most` are held, and `most_of_tenant` by one that has a name. `what` says who takes them."""
        self._what = what
        self._most, self._most_of_tenant = most, most_of_tenant
        # Bytes are given back wherever their holder ends, also while the same thread counts.
        self._lock = threading.RLock()
        self._held = Tally()

    @property
    def held(self) -> int:
        """All that are held now."""
        return self._held.total()

    def take(self, size: int, tenant: str) -> None:
        """Count bytes that are held from now on. Who holds the only ones may have more: no retry would help.

        Raises:
            Overloaded: requests that are not finished hold all that they may already.
        """
        with self._lock:
            if self._exceeds(size, self.held, self._most) or (
                tenant and self._exceeds(size, self._held[tenant], self._most_of_tenant)
            ):
                raise Overloaded("BYTE_BUDGET", f"{self._what} {size:,} bytes, and others hold the room for that")
            self._held[tenant] += size

    def give_back(self, size: int, tenant: str) -> None:
        """Count bytes that are free again."""
        with self._lock:
            self._held.less(tenant, size)

    def _exceeds(self, size: int, held: int, most: int) -> bool:
        return held > 0 and held + size > most


# Of all constraints, and of those of one tenant that has a name. One holds at most 64 MiB, and a usual one less than
# one.
MAX_BYTES = 256 << 20
MAX_BYTES_OF_TENANT = MAX_BYTES // 2


class ConstraintMemory:
    """Any thread may use it."""

    def __init__(self) -> None:
        self._bytes = HeldBytes("this constraint takes", MAX_BYTES, MAX_BYTES_OF_TENANT)

    def hold(self, constraint: Constraint, tenant: str) -> None:
        """Count what a constraint holds, until nobody has it any more.

        Raises:
            Overloaded: the constraints of requests that are not finished hold all that they may already.
        """
        size = constraint.num_bytes
        self._bytes.take(size, tenant)
        weakref.finalize(constraint, self._bytes.give_back, size, tenant)


# Of this process.
HELD = ConstraintMemory()
