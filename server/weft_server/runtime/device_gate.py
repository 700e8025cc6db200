"""The gate to the devices: all threads of the process use them together, or one alone while it captures.

CUDA gives up a capture when any other thread allocates memory meanwhile, on whatever device. So there is one gate.
"""

from __future__ import annotations

import threading
from collections import deque
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from typing import TYPE_CHECKING

import structlog

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from weft_server.runtime.device import Device

_log = structlog.get_logger(__name__)


class DeviceGate:
    """As a context it lets a thread in together with others. Who wants to be `alone` waits until all have left.

    Nobody goes in twice at a time: between the two somebody may have begun to wait for being alone.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._changed = threading.Condition(self._lock)
        self.num_inside = 0
        # Threads that are inside alone, or wait for that. New ones stay outside, so that these get in some day.
        self.num_alone = 0
        # Threads that wait to go in together.
        self.num_kept_out = 0
        self._freed: deque[Callable[[], object]] = deque()

    def __enter__(self) -> None:
        with self._lock:
            if self.num_alone:
                self.num_kept_out += 1
                self._changed.wait_for(lambda: not self.num_alone)
                self.num_kept_out -= 1
            self.num_inside += 1

    def __exit__(self, *_: object) -> None:
        with self._lock:
            self.num_inside -= 1
            if self.num_alone:
                self._changed.notify_all()
        if self._freed:
            self._free_all()

    @contextmanager
    def alone(self) -> Iterator[None]:
        """Be inside alone."""
        with self._lock:
            self.num_alone += 1
            self._changed.wait_for(lambda: not self.num_inside)
            self.num_inside += 1
        try:
            yield
        finally:
            with self._lock:
                self.num_inside -= 1
                self.num_alone -= 1
                self._changed.notify_all()
            if self._freed:
                self._free_all()

    def free(self, give_back: Callable[[], object]) -> None:
        """Call what gives memory back to a device. If a thread is inside alone, it does so when it leaves.

        This is for what dies. So it may be Python's garbage collector that calls, amid anything that its thread does
        here, and nothing is waited for.
        """
        self._freed.append(give_back)
        self._free_all()

    def _free_all(self) -> None:
        # If another thread holds the lock, it is about to go in or out, and comes here when it leaves.
        while self._freed and self._lock.acquire(blocking=False):
            is_free = not (self.num_alone and self.num_inside)
            self.num_inside += is_free
            self._lock.release()
            if not is_free:
                return
            try:
                while self._freed:
                    _give_back(self._freed)
            finally:
                with self._lock:
                    self.num_inside -= 1
                    self._changed.notify_all()


def _give_back(freed: deque[Callable[[], object]]) -> None:
    """Call the next of what gives memory back, unless another thread has."""
    with suppress(IndexError):
        give_back = freed.popleft()
        try:
            give_back()
        except Exception:  # noqa: BLE001 - whoever dies here has nobody to tell, and others shall not fail with it
            _log.exception("memory of a device was not given back")


GATE = DeviceGate()
_OPEN = nullcontext()


def device_gate_of(device: Device) -> AbstractContextManager[None]:
    """Return what a thread has to be inside of while it uses a device. Nobody waits for the host's memory."""
    return _OPEN if device.in_place else GATE
