"""The last refusals of all callers, for who changes the models. No words: these may quote what a caller wrote."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from weft_server.models.request_context import RequestContext

# Kinds that are kept, of all and of one tenant. So one name that is refused for everything hides no other's.
MAX_KINDS = 50
MAX_OF_TENANT = 10


class Kind(NamedTuple):
    """Refusals that are like each other.

    Each field is a name of ours, or one that the tokens file, a certificate or a gateway gives.
    """

    tenant: str
    method: str
    code: str
    reason: str
    model: str


class Refusals(NamedTuple):
    """How often a kind came since it is kept, and when it came last, in seconds since 1970."""

    number: int
    last_s: float


class RecentRefusals:
    """One for a server. To be used on the event loop's thread."""

    def __init__(self) -> None:
        # The one that came last stands last.
        self._kinds: dict[Kind, Refusals] = {}

    def note(self, call: RequestContext, code: str, reason: str) -> None:
        """Keep that a request ended so, if it has a reason. `call` is the request's first one."""
        if not reason:
            return
        name, version, _ = call.metrics.labels if call.metrics else ("", "", "")
        kind = Kind(call.tenant, call.method, code, reason, f"{name} {version}".strip())
        known = self._kinds.pop(kind, None)
        self._kinds[kind] = Refusals(known.number + 1 if known else 1, time.time())
        if not known:
            self._make_room(kind.tenant)

    def rows(self) -> list[tuple[Kind, Refusals]]:
        """Return what is kept, the last one first."""
        return list(reversed(self._kinds.items()))

    def _make_room(self, tenant: str) -> None:
        """Let the oldest one go: the tenant's own, if it has too many."""
        own = [kind for kind in self._kinds if kind.tenant == tenant]
        if len(own) > MAX_OF_TENANT:
            del self._kinds[own[0]]
        elif len(self._kinds) > MAX_KINDS:
            del self._kinds[next(iter(self._kinds))]
