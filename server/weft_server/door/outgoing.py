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

from weft_server.door.connections import peer_key
from weft_server.door.sweep import Sweep
from weft_server.errors import Overloaded
from weft_server.tally import Tally

if TYPE_CHECKING:
    from weft_server.door.connections import Connections
    from weft_server.serving.call import Call

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
        self._sending: dict[Call, _Sending] = {}
        self._bytes_of = Tally()
        self._sweep = Sweep(self._give_up, self._sending, SWEEP_S)
        self.num_bytes = 0
        # Connections that were ended because their callers did not read.
        self.num_ended = 0

    @property
    def num_sending(self) -> int:
        """How many answers, and parts of streamed answers, are on their way."""
        return len(self._sending)

    def check(self, call: Call) -> None:
        """Raise Overloaded for a caller who has more to read already than one may have, before its message is read."""
        if (unread := self._bytes_of[call.holder]) > self._max_bytes * MAX_SHARE:
            raise Overloaded("BYTE_BUDGET", f"this caller has answers of {unread:,} bytes to read first")

    def begin(self, call: Call, num_bytes: int) -> None:
        """Count an answer, or one part of a streamed answer, before gRPC gets it."""
        self._sending[call] = _Sending(call.holder, num_bytes, time.monotonic())
        self._bytes_of[call.holder] += num_bytes
        self.num_bytes += num_bytes
        self._sweep.begin()

    def end(self, call: Call) -> None:
        """Take it off the count: it is out, or given up."""
        if (sending := self._sending.pop(call, None)) is None:
            return
        self.num_bytes -= sending.num_bytes
        self._bytes_of.less(sending.holder, sending.num_bytes)

    def _give_up(self) -> None:
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

    def _largest(self, stood: list[tuple[Call, _Sending]]) -> set[str]:
        """The connections to end so that the rest is not too much: of the holder that has most, its largest."""
        num_bytes, count = sum(sending.num_bytes for _, sending in stood), len(stood)
        ended: set[str] = set()
        while num_bytes > self._max_bytes or count > MAX_SENDING:
            weigh = (lambda sending: sending.num_bytes) if num_bytes > self._max_bytes else (lambda _: 1)
            of_holder: defaultdict[str, int] = defaultdict(int)
            of_peer: defaultdict[tuple[str, str], int] = defaultdict(int)
            for call, sending in stood:
                of_holder[sending.holder] += weigh(sending)
                of_peer[sending.holder, call.peer] += weigh(sending)
            holder = max(of_holder, key=of_holder.__getitem__)
            _, peer = max((key for key in of_peer if key[0] == holder), key=of_peer.__getitem__)
            ended.add(peer)
            stood = [each for each in stood if each[0].peer != peer]
            num_bytes, count = sum(sending.num_bytes for _, sending in stood), len(stood)
        return ended
