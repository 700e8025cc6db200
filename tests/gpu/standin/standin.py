"""The stand-in for CUDA's runtime, as the tests see it: whether it is there, and what it has counted."""

import ctypes
import gc
from contextlib import contextmanager

# In the order of src/device.hpp.
_FIELDS = [
    "strays",
    "kernels",
    "unemulated",
    "to_device",
    "to_device_bytes",
    "to_host",
    "to_host_bytes",
    "within",
    "within_bytes",
    "memsets",
    "syncs",
    "allocations",
    "frees",
    "allocated_bytes",
    "captures",
    "launches",
    "launched_operations",
    "hazards",
    "violations",
    "streams",
    "events",
    "graphs",
    "pinned",
]
# Of these, what is there now. The others only grow.
_HELD = ("allocated_bytes", "streams", "events", "graphs", "pinned")


class Device(ctypes.Structure):
    """What a device was given to do, holds now, and has. In the order of src/device.hpp."""

    _fields_ = (("operations", ctypes.c_long), ("allocated_bytes", ctypes.c_long), ("bytes", ctypes.c_long))


def runtime():
    """The library, or None where the loader finds a real one or none."""
    try:
        library = ctypes.CDLL("libcudart.so.13")
        library.standin_device.restype = ctypes.POINTER(Device)
        library.standin_counts.restype = ctypes.POINTER(ctypes.c_long * len(_FIELDS))
    except (OSError, AttributeError):
        return None
    return library


RUNTIME = runtime()
WHY_NOT = "" if RUNTIME else "make test-gpu-standin puts the stand-in in CUDA's place"


class Counts(dict):
    """What happened between two moments, by name. All names of src/device.hpp are there."""

    __getattr__ = dict.__getitem__


def device(index):
    """One of the devices, as it is at any time."""
    return RUNTIME.standin_device(index).contents


def resize(index, num_bytes):
    """Let a device have so much memory from now on."""
    RUNTIME.standin_resize(index, ctypes.c_long(num_bytes))


def counted():
    """What happened since the process began."""
    return Counts(zip(_FIELDS, RUNTIME.standin_counts().contents, strict=True))


def held():
    """What the process holds of the device now."""
    # What a model held goes with its last reference.
    gc.collect()
    counts = counted()
    return {name: counts[name] for name in _HELD}


@contextmanager
def failing(kind, after=0):
    """Let one allocation, launch or replay fail within, once so many have succeeded."""
    RUNTIME.standin_fail(kind.encode(), after)
    try:
        yield
    finally:
        RUNTIME.standin_fail(kind.encode(), -1)


@contextmanager
def counting():
    """Yield what happens within."""
    before, counts = counted(), Counts()
    yield counts
    counts.update({name: value - before[name] for name, value in counted().items()})


@contextmanager
def lingering(milliseconds):
    """Let each capture within last so much longer."""
    RUNTIME.standin_linger(milliseconds)
    try:
        yield
    finally:
        RUNTIME.standin_linger(0)


def verify_clean(counts):
    """Nothing raced, nothing was done that a capture forbids, no kernel computed nothing or on the wrong device."""
    assert (0, 0, 0, 0) == (counts.unemulated, counts.hazards, counts.violations, counts.strays)
