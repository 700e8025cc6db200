"""The end of the process: signals that ask for it, and a watch that sees to it whatever stands still.

A thread takes the signals, not the event loop: C code notes their numbers in a pipe, wherever the main thread is. So it
imports little, and begins before all else that takes long. Process 1 of a container ignores a signal until then.
"""

from __future__ import annotations

import faulthandler
import math
import os
import select
import signal
import sys
import threading
import time
import traceback
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from weft_server.process.exit_codes import ExitCode

if TYPE_CHECKING:
    from collections.abc import Callable

# A closed terminal sends SIGHUP. Admitted requests are finished then too. It may come several times, from a shell and
# from the kernel, and beside a SIGTERM of systemd. So it is nobody's haste: it never counts as a second signal.
SIGNALS = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)
# What ends later than it may, by so many seconds, is ended: after the calls, listeners and threads end too.
MARGIN_S = 15.0
# If our own thread cannot end the process in time, because something keeps the interpreter for good, C code does so.
_C_MARGIN_S = 5.0
_ARMED = 0


class Shutdown:
    """One for the process, made on the main thread. Signals that are ignored by then stay ignored, as by nohup.

    Until `serve` is called, a signal ends the process at once with code 0: nothing has begun that is to be finished.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._stop: Callable[[], None] | None = None
        self._tell: Callable[..., None] = _nobody
        self._flush: Callable[[], None] = _nobody
        self._limit_s = 0.0
        # Without SIGHUP.
        self._num_signals = 0
        # Monotonic seconds at which the process is ended.
        self._deadline = math.inf
        self._noted, note = os.pipe()
        os.set_blocking(note, False)
        self._note = note
        signal.set_wakeup_fd(note, warn_on_full_buffer=False)
        for number in SIGNALS:
            if signal.getsignal(number) is not signal.SIG_IGN:
                signal.signal(number, self._note_signal)
        threading.Thread(target=self._watch, name="signals", daemon=True).start()

    def take_back(self) -> None:
        """Have C code write here again: an event loop that begins has it write to a pipe of its own until it ends."""
        signal.set_wakeup_fd(self._note, warn_on_full_buffer=False)

    def _note_signal(self, number: int, _frame: object) -> None:
        """Note a signal that C code has written elsewhere: a loop begins or ends."""
        if signal.set_wakeup_fd(self._note, warn_on_full_buffer=False) != self._note:
            os.write(self._note, bytes([number]))

    def serve(self, stop: Callable[[], None], limit_s: float, tell: Callable[..., None]) -> None:
        """From now on call `stop` for a signal, from another thread. It may be called again.

        A second SIGTERM or SIGINT ends the process with code 1.
        `limit_s` seconds and a margin after the first signal, the process ends with code 1 too. `tell` logs an error.
        """
        with self._lock:
            self._stop, self._limit_s, self._tell = stop, limit_s, tell

    def finish_with(self, flush: Callable[[], None]) -> None:
        """Call `flush` before the process is ended. It takes a bounded time."""
        self._flush = flush

    def begin(self) -> None:
        """Watch that the process ends in time, as after a signal: it stops by itself. Any thread may call it."""
        with self._lock:
            if self._deadline < math.inf:
                return
            limit_s = self._limit_s + MARGIN_S
            self._deadline = time.monotonic() + limit_s
        faulthandler.dump_traceback_later(limit_s + _C_MARGIN_S, exit=True, file=_free_stderr())
        os.write(self._note, bytes([_ARMED]))

    def exit_now(self, code: int) -> None:
        """End the process whatever its threads do. What was logged is written, if that goes on."""
        self._flush()
        os._exit(code)

    def _watch(self) -> None:
        while True:
            left = None if self._deadline == math.inf else max(0.0, self._deadline - time.monotonic())
            ready, _, _ = select.select([self._noted], [], [], left)
            if not ready:
                self._tell("not ended in time, exiting now", seconds=self._limit_s + MARGIN_S, stack=_main_stack())
                self.exit_now(ExitCode.FAILED)
            for number in os.read(self._noted, 64):
                if number in SIGNALS:
                    self._take(number)

    def _take(self, number: int) -> None:
        self._num_signals += number != signal.SIGHUP
        with self._lock:
            stop = self._stop
        if stop is None:
            self.exit_now(ExitCode.DONE)
        elif self._num_signals > 1:
            self._tell("second signal, exiting now")
            self.exit_now(ExitCode.FAILED)
        else:
            self.begin()
            stop()


@cache
def take_signals() -> Shutdown:
    """Return the one of the process. The first call makes it."""
    return Shutdown()


def _nobody(*_: Any, **__: Any) -> None:
    """A signal is noted in C. Python has no more to do."""


def _main_stack() -> str:
    """Where the main thread is, the innermost call last."""
    frame = sys._current_frames().get(threading.main_thread().ident or 0)  # noqa: SLF001 - there is no other way
    return "".join(traceback.format_stack(frame)) if frame else ""


def _free_stderr() -> Any:
    """Where C code may write without waiting for a reader: standard error, if that is free of waiting."""
    try:
        if not os.get_blocking(2) or Path("/dev/fd/2").is_file():
            return 2
    except OSError:
        pass
    return os.open(os.devnull, os.O_WRONLY)
