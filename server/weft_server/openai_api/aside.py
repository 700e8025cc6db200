"""A thread for what would keep all other requests waiting: the reading and writing of large bodies."""

from __future__ import annotations

import asyncio
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable

T = TypeVar("T")

# What takes about a millisecond is done at once: a thread costs a tenth of that.
SMALL_BYTES = 128 * 1024
_THREAD = ThreadPoolExecutor(1, "openai")


async def aside(num_bytes: int, work: Callable[[], T]) -> T:
    """Return what `work` gives, which reads or writes about so many bytes."""
    if num_bytes <= SMALL_BYTES:
        return work()
    return await asyncio.get_running_loop().run_in_executor(_THREAD, work)
