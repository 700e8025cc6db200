"""CUDA's runtime library: the device that a thread speaks to, and its memory, of exactly the size that is asked for."""

from __future__ import annotations

import ctypes
import threading
import weakref
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from weft_server.runtime.device_gate import GATE, device_gate_of

if TYPE_CHECKING:
    from weft_server.runtime.device import Device

_MAPS = Path("/proc/self/maps")
_TO_DEVICE, _TO_HOST = 1, 2
_OUT_OF_MEMORY = 2
# A copy of at most so many bytes keeps the interpreter. To let other threads have it meanwhile can cost 0.5 ms: that is
# how long a busy one keeps it.
SMALL_BYTES = 1 << 18
# Copies of a process follow each other, so a small one waits for the large one that began before. Large ones come in
# pieces of so many bytes.
_PIECE_BYTES = 1 << 22


class _Library(NamedTuple):
    """Calls that may wait let other threads have the interpreter. Those that cannot wait keep it."""

    waits: ctypes.CDLL
    stays: ctypes.PyDLL


# Which device a thread has entered.
_THREAD = threading.local()
# The library that was found. Until then there may be one at any time.
_FOUND: list[_Library] = []


class CudaError(RuntimeError):
    """A call of CUDA failed."""


def num_devices() -> int | None:
    """Return how many devices there are.

    None where nobody can say: ONNX Runtime has not loaded the library, or there is no driver for it.
    """
    library = _library()
    if library is None:
        return None
    number = ctypes.c_int()
    try:
        _check(library, library.stays.cudaGetDeviceCount(ctypes.byref(number)))
    except CudaError:
        return None
    return number.value


def enter(device: Device) -> None:
    """Let what this thread asks of CUDA next go to `device`.

    A new thread speaks to device 0. A copy would go through that one, and take memory there. ONNX Runtime enters the
    device of a graph by itself when it opens, binds or runs it.
    """
    if device.kind == "cuda" and (library := _library()):
        _THREAD.index = device.index
        _check(library, library.stays.cudaSetDevice(device.index))


def free_on(device: Device) -> int | None:
    """Return the bytes of a device's memory that are free now, or None where nobody says."""
    if device.kind != "cuda" or (library := _library()) is None:
        return None
    free, total = ctypes.c_size_t(), ctypes.c_size_t()
    with device_gate_of(device):
        enter(device)
        _check(library, library.waits.cudaMemGetInfo(ctypes.byref(free), ctypes.byref(total)))
    return free.value


def allocate(num_bytes: int, device: Device) -> int:
    """Return where so many bytes of a device's memory begin. Raises MemoryError."""
    enter(device)
    pointer = ctypes.c_void_p()
    library = _loaded()
    _check(library, library.waits.cudaMalloc(ctypes.byref(pointer), ctypes.c_size_t(num_bytes)))
    assert pointer.value is not None, "CUDA allocated nothing. This is a bug."
    return pointer.value


def release(pointer: int, device: Device) -> None:
    """Give back what was allocated.

    Python's garbage collector may call it amid anything else that its thread does, so the thread's device stays.
    """
    library, index = _loaded(), getattr(_THREAD, "index", device.index)
    _check(library, library.stays.cudaSetDevice(device.index))
    _check(library, library.waits.cudaFree(ctypes.c_void_p(pointer)))
    _check(library, library.stays.cudaSetDevice(index))


def send(source: int, pointer: int, num_bytes: int, device: Device) -> None:
    """Copy bytes of the host to a device. They are there when this returns."""
    for start in range(0, num_bytes, _PIECE_BYTES):
        piece = min(_PIECE_BYTES, num_bytes - start)
        _copy(pointer + start, source + start, piece, _TO_DEVICE, device)
    # Of little memory, CUDA returns when it has read the bytes, and not yet written them.
    library = _loaded()
    _check(library, _calls(library, num_bytes).cudaStreamSynchronize(None))


def fetch(pointer: int, target: int, num_bytes: int, device: Device) -> None:
    """Copy bytes of a device to the host."""
    _copy(target, pointer, num_bytes, _TO_HOST, device)


def _copy(target: int, source: int, num_bytes: int, kind: int, device: Device) -> None:
    enter(device)
    library = _loaded()
    pointers = ctypes.c_void_p(target), ctypes.c_void_p(source)
    _check(library, _calls(library, num_bytes).cudaMemcpy(*pointers, ctypes.c_size_t(num_bytes), kind))


def _calls(library: _Library, num_bytes: int) -> ctypes.CDLL:
    return library.stays if num_bytes <= SMALL_BYTES else library.waits


def _loaded() -> _Library:
    library = _library()
    assert library is not None, "nobody has tried this device. This is a bug."
    return library


def _library() -> _Library | None:
    """The library that ONNX Runtime has loaded, whatever its version. None before it has."""
    if _FOUND:
        return _FOUND[0]
    try:
        paths = [line.split()[-1] for line in _MAPS.read_text().splitlines() if "/libcudart.so" in line]
    except OSError:
        paths = []
    if not paths:
        return None
    library = _Library(ctypes.CDLL(paths[0]), ctypes.PyDLL(paths[0]))
    for each in library:
        each.cudaGetErrorString.restype = ctypes.c_char_p
    _FOUND.append(library)
    return library


def _check(library: _Library, error: int) -> None:
    if not error:
        return
    # Who asks for the last error next shall not hear of this one.
    library.stays.cudaGetLastError()
    says = library.stays.cudaGetErrorString(error).decode()
    raise MemoryError(f"CUDA: {says}") if error == _OUT_OF_MEMORY else CudaError(f"CUDA: {says} ({error})")


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
            self.pointer = allocate(num_bytes, device)
        # It goes with its last holder. At the exit of the process the system takes all.
        weakref.finalize(self, GATE.free, partial(release, self.pointer, device)).atexit = False

    def send(self, array: np.ndarray) -> None:
        """Copy an array of this size here. It is there when this returns."""
        array = np.ascontiguousarray(array)
        assert array.nbytes == self._num_bytes, f"{array.nbytes} bytes for {self._num_bytes}. This is a bug."
        with self._gate:
            if self._device.kind == "cpu":
                ctypes.memmove(self.pointer, array.ctypes.data, self._num_bytes)
            else:
                send(array.ctypes.data, self.pointer, self._num_bytes, self._device)

    def fetch(self, array: np.ndarray) -> None:
        """Copy all of it into an array of this size."""
        assert array.nbytes == self._num_bytes, f"{self._num_bytes} bytes into {array.nbytes}. This is a bug."
        with self._gate:
            if self._device.kind == "cpu":
                ctypes.memmove(array.ctypes.data, self.pointer, self._num_bytes)
            else:
                fetch(self.pointer, array.ctypes.data, self._num_bytes, self._device)
