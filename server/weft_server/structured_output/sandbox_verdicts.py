"""What trials of grammars found, remembered for each tenant apart: how long an answer takes tells nothing of others."""

from __future__ import annotations

import hashlib
from collections import OrderedDict

# Grammars of one tenant, and tenants, of which the last ones are remembered, and for how many seconds.
MAX_GRAMMARS = 64
MAX_TENANTS = 256
KEPT_S = 600.0


class SandboxVerdicts:
    """The last ones of the last tenants. `now` is in monotonic seconds everywhere."""

    def __init__(self) -> None:
        # By tenant and digest: when it was found, and what.
        self._found: OrderedDict[str, OrderedDict[bytes, tuple[float, int]]] = OrderedDict()

    def of(self, tenant: str, grammar: str, now: float) -> int | None:
        """Return what was noted for a tenant's grammar, or None."""
        found, key = self._found.get(tenant, OrderedDict()), _digest(grammar)
        since, verdict = found.get(key, (-KEPT_S, 0))
        if now - since >= KEPT_S:
            return None
        found.move_to_end(key)
        self._found.move_to_end(tenant)
        return verdict

    def note(self, tenant: str, grammar: str, now: float, verdict: int) -> None:
        """Remember what was found."""
        found = self._found.setdefault(tenant, OrderedDict())
        found[_digest(grammar)] = now, verdict
        found.move_to_end(_digest(grammar))
        self._found.move_to_end(tenant)
        if len(found) > MAX_GRAMMARS:
            found.popitem(last=False)
        if len(self._found) > MAX_TENANTS:
            self._found.popitem(last=False)


def _digest(grammar: str) -> bytes:
    """Grammars have up to 64 KiB."""
    return hashlib.sha256(grammar.encode()).digest()
