"""How an idle lane gathers the requests that come together, so that one step takes them all."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Callable

# An idle lane does not begin at the first request that comes. The wait is counted in turns of the event loop since the
# last request came:
# 1. GATHER_TURNS for each request that is here: where many are, more come. For a lone one these take 0.1 ms.
# 2. At most MAX_GATHER_TURNS.
# 3. However many come, the wait ends GATHER_S seconds after the first.
GATHER_TURNS = 8
MAX_GATHER_TURNS = 64
GATHER_S = 0.006


class BatchWindow:
    """Wakes somebody some turns of the event loop after the last request that came. For the event loop's thread."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        # Whether a call of `_turn` is on its way, and how many turns it still waits.
        self._is_on = False
        self._turns = 0

    def note(self, num_here: int, wake: Callable[[], None]) -> None:
        """Take note of a request that has just come. `num_here` are here now.

        `wake` is kept for those turns only. Kept for ever, it would hold the engine, which holds this: a model that
        left would stay in memory until the garbage collector comes.
        """
        # A lane that woke at the first request would fight the event loop for the interpreter, and run a single row.
        self._turns = min(GATHER_TURNS * num_here, MAX_GATHER_TURNS)
        if not self._is_on:
            self._is_on = True
            self._loop.call_soon(self._turn, time.monotonic() + GATHER_S, wake)

    def _turn(self, until: float, wake: Callable[[], None]) -> None:
        if self._turns and time.monotonic() < until:
            self._turns -= 1
            self._loop.call_soon(self._turn, until, wake)
            return
        self._is_on = False
        wake()
