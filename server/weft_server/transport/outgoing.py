"""Answers on their way out: how many bytes, to whom, and for how long. gRPC keeps an answer until its caller reads it.

gRPC can end no single answer that its caller does not read. So the caller's connection is ended, and with it whatever
else is on its way there.
"""

from __future__ import annotations

import time
from collections import defaultdict
from dataclasses import dataclass
from typing import TYPE_CHECKING

import structlog

from weft_server.errors import Overloaded
from weft_server.tally import Largest, Tally
from weft_server.transport.connections import peer_key
from weft_server.transport.sweep import Sweep

if TYPE_CHECKING:
    from collections.abc import Callable

    from weft_server.models.request_context import RequestContext
    from weft_server.transport.connections import Connections

_log = structlog.get_logger(__name__)
# Of the answers of all callers together.
MAX_SENDING_BYTES = 64 * 1024 * 1024
# Of those, one caller's.
MAX_SHARE = 0.5
# How many answers may stand unread, of all callers together.
MAX_SENDING = 1024
# An answer has its time, and one second more for each of these bytes, to be read.
MIN_BYTES_PER_S = 64 * 1024
SWEEP_S = 0.5


@dataclass(slots=True)
class _Sending:
    holder: str
    num_bytes: int
    since: float


class Outgoing:
    """One for all of a server's ports. To be used on the event loop's thread."""

    def __init__(self, connections: Connections, max_bytes: int = MAX_SENDING_BYTES, timeout_s: float = 30.0) -> None:
        self._connections = connections
        self._max_bytes = max_bytes
        self._timeout_s = timeout_s
        # Oldest first.
        self._sending: dict[RequestContext, _Sending] = {}
        self._bytes_of = Tally()
        self._sweep = Sweep(self.give_up, self._sending, SWEEP_S)
        self.num_bytes = 0
        # Connections that were ended because their callers did not read.
        self.num_ended = 0

    @property
    def num_sending(self) -> int:
        """How many answers, and parts of streamed answers, are on their way."""
        return len(self._sending)

    def check(self, call: RequestContext) -> None:
        """Raise Overloaded for a caller who has more to read already than one may have, before its message is read."""
        if (unread := self._bytes_of[call.holder]) > self._max_bytes * MAX_SHARE:
            raise Overloaded("BYTE_BUDGET", f"this caller has answers of {unread:,} bytes to read first")

    def begin(self, call: RequestContext, num_bytes: int) -> None:
        """Count an answer, or one part of a streamed answer, before gRPC gets it."""
        self._sending[call] = _Sending(call.holder, num_bytes, time.monotonic())
        self._bytes_of[call.holder] += num_bytes
        self.num_bytes += num_bytes
        call.usage.response_bytes += num_bytes
        self._sweep.begin()

    def end(self, call: RequestContext) -> None:
        """Take it off the count: it is out, or given up."""
        if (sending := self._sending.pop(call, None)) is None:
            return
        self.num_bytes -= sending.num_bytes
        self._bytes_of.less(sending.holder, sending.num_bytes)

    def give_up(self) -> None:
        """End the connections of who reads too slowly; and while there is too much to read, those of who has most."""
        now = time.monotonic()
        late, stood = set(), []
        for call, sending in self._sending.items():
            if call.given_up:
                continue
            if now - sending.since > self._timeout_s + sending.num_bytes / MIN_BYTES_PER_S:
                late.add(call.peer)
            # What has just been written may pass at once.
            elif now - sending.since > SWEEP_S:
                stood.append((call, sending))
        late |= self._largest([each for each in stood if each[0].peer not in late])
        if not late:
            return
        for call in self._sending:
            if call.peer in late:
                call.given_up = "ANSWER_UNREAD"
        ended = self._connections.hang_up(map(peer_key, late))
        self.num_ended += ended
        _log.warning("connections ended whose callers do not read", connections=ended)

    def _largest(self, stood: list[tuple[RequestContext, _Sending]]) -> set[str]:
        """The connections to end so that the rest is not too much."""
        ended = _largest_of(stood, lambda sending: sending.num_bytes, self._max_bytes)
        rest = [each for each in stood if each[0].peer not in ended]
        return ended | _largest_of(rest, lambda _: 1, MAX_SENDING)


def _largest_of(stood: list[tuple[RequestContext, _Sending]], weigh: Callable[[_Sending], int], most: int) -> set[str]:
    """The connections to end so that no more than `most` is left: of the holder that has most, its largest."""
    of_holder = Tally()
    of_peers: defaultdict[str, Tally] = defaultdict(Tally)
    # A proxy's connection carries the answers of several holders.
    of_holders: defaultdict[str, Tally] = defaultdict(Tally)
    for call, sending in stood:
        weight = weigh(sending)
        of_holder[sending.holder] += weight
        of_peers[sending.holder][call.peer] += weight
        of_holders[call.peer][sending.holder] += weight
    total = of_holder.total()
    if total <= most:
        return set()
    largest = Largest(of_holder)
    peers = {holder: Largest(weights) for holder, weights in of_peers.items()}
    ended: set[str] = set()
    while total > most:
        peer = peers[largest.key].key
        ended.add(peer)
        for holder, weight in of_holders[peer].items():
            largest.take(holder, weight)
            peers[holder].drop(peer)
        total -= of_holders[peer].total()
    return ended
