"""Writes lines on a thread of its own: nobody who logs waits for a reader, or for a disk."""

from __future__ import annotations

import os
import select
import stat
import threading
import time
from contextlib import suppress
from queue import Empty, SimpleQueue
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

# Lines that wait hold at most this many bytes together. What comes beyond them is dropped and counted.
MAX_BYTES = 4 * 1024 * 1024
# How long the end of the process waits for a reader who does not read.
FLUSH_S = 2.0
# As many bytes are written at a time, if they wait already.
_CHUNK = 64 * 1024


class LogWriter:
    """Writes to a file descriptor, in the order in which lines came. Any thread may write, also in a signal handler."""

    def __init__(self, descriptor: int, tell_of_gap: Callable[[int], str]) -> None:
        """`tell_of_gap` makes the line that stands where a number of lines is missing."""
        self._descriptor = descriptor
        self._tell_of_gap = tell_of_gap
        self._lines: SimpleQueue[bytes] = SimpleQueue()
        # Guards the numbers. It is held for arithmetic only. Whoever holds it may be interrupted by who writes too.
        self._lock = threading.RLock()
        self._written = threading.Condition(self._lock)
        # Of lines that wait or are being written.
        self._num_bytes = 0
        # Dropped since the last line was taken.
        self._num_missing = 0
        self.num_dropped = 0
        threading.Thread(target=self._run, name="log", daemon=True).start()

    def write(self, text: str) -> None:
        """Let whole lines be written, or drop them if too many wait. Does not wait."""
        data = text.encode("utf-8", "backslashreplace")
        with self._lock:
            if self._num_bytes + len(data) > MAX_BYTES:
                self._num_missing += 1
                self.num_dropped += 1
                return
            self._close_gap()
            self._put(data)

    def flush(self, timeout_s: float = FLUSH_S) -> None:
        """Wait until all is written, at most this long."""
        give_up = time.monotonic() + timeout_s
        with self._written:
            while self._num_bytes and (left := give_up - time.monotonic()) > 0:
                self._written.wait(left)

    def _put(self, data: bytes) -> None:
        self._num_bytes += len(data)
        self._lines.put(data)

    def _close_gap(self) -> None:
        """Say where lines are missing. Holds the lock."""
        if self._num_missing:
            num_missing, self._num_missing = self._num_missing, 0
            self._put(self._tell_of_gap(num_missing).encode())

    def _run(self) -> None:
        while True:
            data = self._lines.get()
            with suppress(Empty):
                while len(data) < _CHUNK:
                    data += self._lines.get_nowait()
            is_lost = not self._write(data)
            with self._lock:
                self._num_bytes -= len(data)
                if is_lost:
                    self.num_dropped += data.count(b"\n")
                if self._lines.empty():
                    self._close_gap()
                self._written.notify_all()

    def _write(self, data: bytes) -> bool:
        """Write all of it, however long that takes. Returns whether it could: a disk may be full, a reader gone."""
        left = memoryview(data)
        try:
            while left:
                try:
                    left = left[os.write(self._descriptor, left) :]
                except BlockingIOError:
                    poll = select.poll()
                    poll.register(self._descriptor, select.POLLOUT)
                    poll.poll()
        except OSError:
            return False
        return True


def make_patient(descriptor: int) -> bool:
    """Let nobody who writes to a descriptor wait for its reader, libraries in C included. Returns whether it is so.

    What they write past our thread is lost then, if the reader stands still. A pipe or a terminal is opened anew for
    that: others have the same one, and theirs stays as it is. A socket cannot be. Files of a disk have no reader.
    """
    try:
        mode = os.fstat(descriptor).st_mode
        if stat.S_ISSOCK(mode):
            os.set_blocking(descriptor, False)
        elif stat.S_ISFIFO(mode) or os.isatty(descriptor):
            fresh = os.open(f"/dev/fd/{descriptor}", os.O_WRONLY | os.O_NONBLOCK | os.O_NOCTTY)
            os.dup2(fresh, descriptor)
            os.close(fresh)
    except OSError:  # it belongs to somebody else, or nobody reads any more
        return False
    return True
