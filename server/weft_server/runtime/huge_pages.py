"""Memory in huge pages, where the system has them: for arrays that runs read in scattered pieces, and for weights."""

from __future__ import annotations

import contextlib
import ctypes
import math
import mmap
import re
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Iterator

HUGE = 2 << 20
# Of madvise(2), since Linux 6.1. Python does not name it.
_MADV_COLLAPSE = 25
# Whether memory may lie in them. See transparent huge pages in the kernel's manual: always, for who asks, or never.
_ENABLED = Path("/sys/kernel/mm/transparent_hugepage/enabled")
# Memory of our own that no file is behind, in smaps of proc(5): its beginning, its end, and how much is in use.
_OWN = re.compile(r"^([0-9a-f]+)-([0-9a-f]+) rw-p \S+ \S+ 0 .*\n(?:\w+: .*\n)*?Rss: +([0-9]+) kB$", re.MULTILINE)


def page_bytes() -> int:
    """Return how much memory `zeros` takes when a byte of it is touched: 2 MiB where the system has huge pages."""
    try:
        has_huge = "[never]" not in _ENABLED.read_text(encoding="ascii")
    except OSError:
        has_huge = False
    return HUGE if has_huge else mmap.PAGESIZE


def zeros(shape: tuple[int, ...], dtype: np.dtype) -> np.ndarray:
    """Return an array of zeros, in pages of 2 MiB where the system has them.

    Its memory is taken when it is first touched. Attention reads a few KiB of each head of each row. With pages of 4
    KiB, a good part of that time goes into looking up pages. numpy asks for huge pages too, but not for memory that the
    system zeroes.
    """
    size = max(1, math.prod(shape)) * dtype.itemsize
    memory = mmap.mmap(-1, size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    if hasattr(mmap, "MADV_HUGEPAGE"):
        # A kernel built without them refuses the advice.
        with contextlib.suppress(OSError):
            memory.madvise(mmap.MADV_HUGEPAGE)
    return np.frombuffer(memory, dtype, math.prod(shape)).reshape(shape)


def collapse() -> int:
    """Move the process's own memory into huge pages. Returns how many bytes of it lie in such pages now.

    A step reads all weights. ONNX Runtime has put them into pages of 4 KiB. They stay there in three cases:

    1. The system is not Linux.
    2. It is older than Linux 6.1.
    3. It has no 2 MiB in one piece.
    """
    madvise = ctypes.CDLL(None).madvise
    spans = [
        (ctypes.c_void_p(start), ctypes.c_size_t(HUGE))
        for first, end in _filled()
        for start in range(-(-first // HUGE) * HUGE, end - HUGE + 1, HUGE)
    ]
    num_pages: int = sum(madvise(start, size, _MADV_COLLAPSE) == 0 for start, size in spans)
    return HUGE * num_pages


def _filled() -> Iterator[tuple[int, int]]:
    """Yield beginning and end of memory that is in use to three quarters. Collapsing also takes what is not used."""
    try:
        maps = Path("/proc/self/smaps").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return
    for first, end, kib in _OWN.findall(maps):
        start, stop = int(first, 16), int(end, 16)
        if int(kib) << 10 >= (stop - start) * 3 // 4:
            yield start, stop
