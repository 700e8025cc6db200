"""Answers on their way out: how many bytes, to whom, and for how long. gRPC keeps an answer until its caller reads it.

gRPC can end no single answer that its caller does not read. So the caller's connection is ended, and with it whatever
else is on its way there.
"""

from __future__ import annotations

import asyncio
import time
from collections import defaultdict
from dataclasses import dataclass
from typing import TYPE_CHECKING

import structlog

from weft_server.door.connections import peer_key
from weft_server.errors import Overloaded

if TYPE_CHECKING:
    from weft_server.door.connections import Connections
    from weft_server.serving.call import Call

_log = structlog.get_logger(__name__)
# Of the answers of all callers together.
MAX_SENDING_BYTES = 64 * 1024 * 1024
# Of those, one caller's.
MAX_SHARE = 0.5
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
        self._bytes_of: defaultdict[str, int] = defaultdict(int)
        self._sweeps = False
        self.num_bytes = 0
        # Connections that were ended because their callers did not read.
        self.num_ended = 0

    @property
    def num_sending(self) -> int:
        """How many answers, and parts of streamed answers, are on their way."""
        return len(self._sending)

    def check(self, call: Call) -> None:
        """Raise Overloaded for a caller who has more to read already than one may have, before its message is read."""
        if (unread := self._bytes_of.get(call.holder, 0)) > self._max_bytes * MAX_SHARE:
            raise Overloaded("BYTE_BUDGET", f"this caller has answers of {unread:,} bytes to read first")

    def begin(self, call: Call, num_bytes: int) -> None:
        """Count an answer, or one part of a streamed answer, before gRPC gets it."""
        self._sending[call] = _Sending(call.holder, num_bytes, time.monotonic())
        self._bytes_of[call.holder] += num_bytes
        self.num_bytes += num_bytes
        if not self._sweeps:
            self._sweeps = True
            asyncio.get_running_loop().call_later(SWEEP_S, self._sweep)

    def end(self, call: Call) -> None:
        """Take it off the count: it is out, or given up."""
        if (sending := self._sending.pop(call, None)) is None:
            return
        self.num_bytes -= sending.num_bytes
        self._bytes_of[sending.holder] -= sending.num_bytes
        if not self._bytes_of[sending.holder]:
            del self._bytes_of[sending.holder]

    def _sweep(self) -> None:
        try:
            self._give_up()
        finally:
            self._sweeps = bool(self._sending)
            if self._sweeps:
                asyncio.get_running_loop().call_later(SWEEP_S, self._sweep)

    def _give_up(self) -> None:
        """End the connections of who reads too slowly, and while all have too much to read, of who has most."""
        now = time.monotonic()
        late = {
            call.peer
            for call, sending in self._sending.items()
            if now - sending.since > self._timeout_s + sending.num_bytes / MIN_BYTES_PER_S
        }
        # What has just been written may pass at once.
        stood = [(call, each) for call, each in self._sending.items() if now - each.since > SWEEP_S]
        unread: defaultdict[str, int] = defaultdict(int)
        for call, each in stood:
            unread[call.peer] += each.num_bytes
        left = sum(num_bytes for peer, num_bytes in unread.items() if peer not in late)
        for peer in sorted(unread.keys() - late, key=lambda peer: unread[peer], reverse=True):
            if left <= self._max_bytes:
                break
            late.add(peer)
            left -= unread[peer]
        if late:
            for call in self._sending:
                if call.peer in late:
                    call.given_up = "ANSWER_UNREAD"
            ended = self._connections.hang_up(map(peer_key, late))
            self.num_ended += ended
            _log.warning("connections ended whose callers do not read", connections=ended)
