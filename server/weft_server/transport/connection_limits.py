"""Places for connections: while few are left, those that have never called are ended, so that who calls finds one.

Each port has as many places, and they are looked at apart: who fills one port does so behind any other one too.

A client's watch of health has a connection of its own, which never calls. Such ones are ended last.
"""

from __future__ import annotations

import asyncio
from itertools import chain
from typing import TYPE_CHECKING

import structlog

from weft_server.transport.connections import peer_key

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping

    from weft_server.transport.connections import Connections

_log = structlog.get_logger(__name__)
LOOK_S = 0.5
# Of the places, those that are kept free of connections that neither called nor watch, and of those that only watch.
_FREE_SHARE = 0.25
_FREE_OF_WATCHES = 0.1


class ConnectionLimits:
    """One for a server. To be used on the event loop's thread."""

    def __init__(self, connections: Connections, max_connections: int) -> None:
        """Each port has `max_connections` places."""
        self._connections = connections
        self._most = int(max_connections * (1 - _FREE_SHARE))
        self._most_watching = int(max_connections * (1 - _FREE_OF_WATCHES))
        # Peers that watch, as gRPC spells them.
        self.watching: Callable[[], Collection[str]] = tuple
        self.max_connections = max_connections
        # Peers that have made a call that they may make, as gRPC spells them.
        self._used: set[str] = set()
        # Peers that the last look found, oldest first.
        self._seen: dict[str, None] = {}
        self.num_ended = 0

    def use(self, peer: str) -> None:
        """Note that a peer calls, and may."""
        self._used.add(peer)

    async def keep_looking(self) -> None:
        """End connections whenever places are scarce. To look at them all takes a thread some milliseconds."""
        while True:
            await asyncio.sleep(LOOK_S)
            max_used = 2 * self.max_connections * len(self._connections.ports)
            if self._connections.may_be(self._most) or len(self._used) > max_used:
                ended = self.too_many(await asyncio.to_thread(self._connections.by_port))
                if ended:
                    count = await asyncio.to_thread(self._connections.hang_up, ended)
                    self.num_ended += count
                    _log.warning("connections ended that never called: few places are left", connections=count)

    def too_many(self, by_port: Mapping[int, list[str]]) -> list[str]:
        """Those that never called and that the last look found too, oldest first, so that each port has free places."""
        there, used = dict.fromkeys(chain(*by_port.values())), {peer_key(peer): peer for peer in self._used}
        self._used = {peer for key, peer in used.items() if key in there}
        watching = {peer_key(peer) for peer in self.watching()}
        ended = [peer for peers in by_port.values() for peer in self._too_many_of(peers, used, watching)]
        old = [peer for peer in self._seen if peer in there]
        self._seen = dict.fromkeys([*old, *there])
        return ended

    def _too_many_of(self, peers: list[str], used: Collection[str], watching: Collection[str]) -> list[str]:
        there = set(peers)
        old = [peer for peer in self._seen if peer in there]
        idle = {peer for peer in peers if peer not in used and peer not in watching}
        only_watch = [peer for peer in old if peer not in used and peer in watching]
        # Who has just come may be about to call.
        ended = [peer for peer in old if peer in idle][: max(0, len(peers) - self._most)]
        return ended + only_watch[: max(0, len(peers) - len(idle) - self._most_watching)]
