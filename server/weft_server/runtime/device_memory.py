"""Memory that the host's code does not touch, of exactly the size that is asked for.

ONNX Runtime's own call takes it from an arena, which grows to powers of two and never gives anything back. Here, what
nobody holds any more is the device's again at once.
"""

from __future__ import annotations

import ctypes
import weakref
from functools import partial
from typing import TYPE_CHECKING

import numpy as np

from weft_server.runtime import cuda
from weft_server.runtime.device_gate import GATE, device_gate_of

if TYPE_CHECKING:
    from weft_server.runtime.device import Device


class DeviceMemory:
    """Bytes of a device's memory, which hold whatever was there. Tests take the CPU's memory for far."""

    def __init__(self, num_bytes: int, device: Device) -> None:
        """Raises MemoryError where there is not so much."""
        self._device = device
        self._gate = device_gate_of(device)
        self._num_bytes = num_bytes
        with self._gate:
            if device.kind == "cpu":
                self._bytes = np.empty(num_bytes, np.uint8)
                self.pointer: int = self._bytes.ctypes.data
                return
            self.pointer = cuda.allocate(num_bytes, device)
        # It goes with its last holder. At the exit of the process the system takes all.
        weakref.finalize(self, GATE.free, partial(cuda.release, self.pointer, device)).atexit = False

    def send(self, array: np.ndarray) -> None:
        """Copy an array of this size here. It is there when this returns."""
        array = np.ascontiguousarray(array)
        assert array.nbytes == self._num_bytes, f"{array.nbytes} bytes for {self._num_bytes}. This is a bug."
        with self._gate:
            if self._device.kind == "cpu":
                ctypes.memmove(self.pointer, array.ctypes.data, self._num_bytes)
            else:
                cuda.send(array.ctypes.data, self.pointer, self._num_bytes, self._device)

    def fetch(self, array: np.ndarray) -> None:
        """Copy all of it into an array of this size."""
        assert array.nbytes == self._num_bytes, f"{self._num_bytes} bytes into {array.nbytes}. This is a bug."
        with self._gate:
            if self._device.kind == "cpu":
                ctypes.memmove(array.ctypes.data, self.pointer, self._num_bytes)
            else:
                cuda.fetch(self.pointer, array.ctypes.data, self._num_bytes, self._device)
