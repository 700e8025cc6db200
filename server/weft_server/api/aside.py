"""A thread for what would keep all other requests waiting: the reading and writing of large bodies."""

from __future__ import annotations

import asyncio
import gc
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable

T = TypeVar("T")

# What takes about a millisecond is done at once: a thread costs a tenth of that.
SMALL_BYTES = 128 * 1024
_THREAD = ThreadPoolExecutor(1, "bodies")


async def aside(num_bytes: int, work: Callable[[], T], small_bytes: int | None = None) -> T:
    """Return what `work` gives, which reads or writes about so many bytes. Up to `small_bytes` it is done at once."""
    if num_bytes <= (SMALL_BYTES if small_bytes is None else small_bytes):
        return work()
    return await asyncio.get_running_loop().run_in_executor(_THREAD, partial(_uncollected, work))


def _uncollected(work: Callable[[], T]) -> T:
    """Do some work without a search for garbage: none of it has cycles.

    Each 100,000 objects would start several searches through all that the server has. During one of them nothing else
    runs, for 30 to 100 ms. There is one thread, so nobody else has a say.
    """
    if not gc.isenabled():
        return work()
    gc.disable()
    try:
        return work()
    finally:
        gc.enable()
