"""Memory for arrays that runs read in scattered pieces: zeroed, and in huge pages where the system has them."""

from __future__ import annotations

import contextlib
import math
import mmap

import numpy as np


def zeros(shape: tuple[int, ...], dtype: np.dtype) -> np.ndarray:
    """Return an array of zeros whose memory is taken when it is first touched, by 2 MiB where pages are huge.

    Attention reads a few KiB of each head of each row: with pages of 4 KiB a good part of it is looking up pages.
    numpy asks for huge pages too, but not for memory that it has zeroed by the system.
    """
    size = max(1, math.prod(shape)) * dtype.itemsize
    memory = mmap.mmap(-1, size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    if hasattr(mmap, "MADV_HUGEPAGE"):
        # A kernel built without them refuses the advice.
        with contextlib.suppress(OSError):
            memory.madvise(mmap.MADV_HUGEPAGE)
    return np.frombuffer(memory, dtype, math.prod(shape)).reshape(shape)
