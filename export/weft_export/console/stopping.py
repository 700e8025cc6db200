"""Signals that end a command, as an exception: what it has begun is cleaned up before it exits."""

import signal
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
# A terminal and a parent process may each send a signal. After the first, others are ignored for this many seconds, so
# that the cleaning up is left alone.
_PATIENCE = 2.0


class Stopped(BaseException):
    """A signal came. It is not an Exception, so that nobody takes it for a failure of what was running."""

    def __init__(self, signum: int) -> None:
        super().__init__(signum)
        self.name = signal.Signals(signum).name
        self.exit_code = 128 + signum
        """What a shell says of a process that the signal ended."""


@contextmanager
def stopped_by_signals() -> Iterator[None]:
    """Raise Stopped in this block for Ctrl-C, SIGTERM and SIGHUP. What is ignored, as by nohup, stays ignored."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    last = -_PATIENCE

    def stop(signum: int, _: FrameType | None) -> None:
        nonlocal last
        now = time.monotonic()
        if now - last >= _PATIENCE:
            last = now
            raise Stopped(signum)

    before = {each: signal.getsignal(each) for each in _SIGNALS}
    caught = [each for each, handler in before.items() if handler is not signal.SIG_IGN]
    for each in caught:
        signal.signal(each, stop)
    try:
        yield
    finally:
        for each in caught:
            signal.signal(each, before[each])
