"""The bytes that built constraints hold, of all models together: a model more is no room more."""

from __future__ import annotations

import threading
import weakref
from typing import TYPE_CHECKING

from weft_server.errors import Overloaded
from weft_server.tally import Tally

if TYPE_CHECKING:
    from weft_server.choosing.constraint import Constraint

# Of all constraints, and of those of one tenant that has a name. One holds at most 64 MiB, and a usual one less than
# one.
MAX_BYTES = 256 << 20
MAX_BYTES_OF_TENANT = MAX_BYTES // 2


class ConstraintMemory:
    """Any thread may use it."""

    def __init__(self) -> None:
        # A constraint is let go wherever it ends, also while somebody else counts.
        self._lock = threading.RLock()
        self._held = Tally()

    def hold(self, constraint: Constraint, tenant: str) -> None:
        """Count what a constraint holds, until nobody has it any more.

        Raises:
            Overloaded: the constraints of requests that are not finished hold all that they may already.
        """
        size = constraint.num_bytes
        with self._lock:
            free = MAX_BYTES - self._held.total()
            if tenant:
                free = min(free, MAX_BYTES_OF_TENANT - self._held[tenant])
            if size > free:
                raise Overloaded(
                    "BYTE_BUDGET", f"this constraint takes {size:,} bytes, and others hold the room for it"
                )
            self._held[tenant] += size
        weakref.finalize(constraint, self._let_go, size, tenant)

    def _let_go(self, size: int, tenant: str) -> None:
        with self._lock:
            self._held.less(tenant, size)


# Of this process.
HELD = ConstraintMemory()
