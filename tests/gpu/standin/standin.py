"""The stand-in for CUDA's runtime, as the tests see it: whether it is there, and what it has counted."""

import ctypes
from contextlib import contextmanager

# In the order of src/device.hpp.
_FIELDS = [
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
]


def runtime():
    """The library, or None where the loader finds a real one or none."""
    try:
        library = ctypes.CDLL("libcudart.so.13")
        library.standin_counts.restype = ctypes.POINTER(ctypes.c_long * len(_FIELDS))
    except (OSError, AttributeError):
        return None
    return library


RUNTIME = runtime()
WHY_NOT = "" if RUNTIME else "make test-gpu-standin puts the stand-in in CUDA's place"


class Counts(dict):
    """What happened between two moments, by name. All names of src/device.hpp are there."""

    __getattr__ = dict.__getitem__


def counted():
    """What happened since the process began."""
    return Counts(zip(_FIELDS, RUNTIME.standin_counts().contents, strict=True))


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
    """Nothing raced, nothing was done that a capture forbids, and no kernel computed nothing."""
    assert (0, 0, 0) == (counts.unemulated, counts.hazards, counts.violations)
