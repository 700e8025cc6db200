"""An event loop that wakes on time."""

import asyncio
import select
import sys
from selectors import SelectSelector


def precise_loop() -> asyncio.AbstractEventLoop:
    """Return a loop that wakes on time: the clock of epoll, which is the default on Linux, ticks in milliseconds."""
    if sys.platform == "linux":
        return asyncio.SelectorEventLoop(_PreciseEpoll())
    return asyncio.SelectorEventLoop(SelectSelector())


if sys.platform == "linux":
    from selectors import EpollSelector, SelectorKey

    class _PreciseEpoll(EpollSelector):
        """Waits for epoll by `select`, whose clock ticks in microseconds. `select` alone takes 1024 files at most."""

        def select(self, timeout: float | None = None) -> list[tuple[SelectorKey, int]]:
            if timeout is None or timeout > 0:
                select.select([self], (), (), timeout)
            return super().select(0)
