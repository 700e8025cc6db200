"""The bytes that built constraints hold, of all models together: a model more is no room more."""

from __future__ import annotations

import weakref
from typing import TYPE_CHECKING

from weft_server.models.held_bytes import HeldBytes

if TYPE_CHECKING:
    from weft_server.logits_processors.constraint import Constraint

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
