"""Slows a flood of refusals down: a caller's beyond a rate are told later. Nobody else waits for that.

A refusal costs about 0.25 ms of processor time by gRPC, nearly all of it gRPC's own, and 0.07 ms by HTTP. A caller who
asks again at once, and a connection that has as many calls as it may have, send no more while they wait for one. So a
flood slows itself down, and the event loop never sleeps.

By HTTP a connection has one call at a time, so a flood comes by many: there a caller is an address. And a refusal that
waits holds a connection, of which there are few. So few wait.
"""

from __future__ import annotations

import asyncio
import time
from collections import OrderedDict

# Refusals of one caller that are told at once: in a second, and together after a while without. A hundred a second take
# about 2 % of a processor.
RATE = 100.0
BURST = 50.0
# How much later others are told.
HOLD_S = 2.0
# How many may wait for that, of all callers: one connection may have as many calls. More are told at once.
MAX_HELD = 1024
# Of the connections that there may be, those that may be held so.
CONNECTIONS_SHARE = 0.125
# Callers whose last refusals are remembered.
MAX_CALLERS = 1024


class LoadShedding:
    """One for the event loop, which alone calls it: each caller's bucket of refusals that are told at once."""

    def __init__(self, max_connections: int = 1000) -> None:
        self.num_held = 0
        self.num_connections_held = 0
        self._max_connections_held = int(CONNECTIONS_SHARE * max_connections)
        # What is left, and the monotonic seconds of the last refusal, by caller: longest ago first.
        self.buckets: OrderedDict[str, tuple[float, float]] = OrderedDict()

    async def refused(self, caller: str, *, holds_connection: bool = False) -> None:
        """Count a refusal of a caller. Returns when it may be told."""
        if not self._is_late(caller, time.monotonic()) or self.num_held >= MAX_HELD:
            return
        if holds_connection and self.num_connections_held >= self._max_connections_held:
            return
        self.num_held += 1
        self.num_connections_held += holds_connection
        try:
            await asyncio.sleep(HOLD_S)
        finally:
            self.num_held -= 1
            self.num_connections_held -= holds_connection

    def _is_late(self, caller: str, now: float) -> bool:
        left, before = self.buckets.pop(caller, (BURST, now))
        left = min(BURST, left + RATE * (now - before))
        is_late = left < 1
        self.buckets[caller] = (left if is_late else left - 1, now)
        if len(self.buckets) > MAX_CALLERS:
            self.buckets.popitem(last=False)
        return is_late
