"""Runs what may call itself very deeply, in threads whose stack is large enough for it."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, TypeVar

from weft_server.process.threads import threads_to_be_had

if TYPE_CHECKING:
    from collections.abc import Callable

Result = TypeVar("Result")
# Four times what the deepest grammar of 64 KiB was found to need. Only what is used takes memory.
STACK_BYTES = 256 << 20
_lock = threading.Lock()


def deep_pool(num_threads: int, name: str) -> ThreadPoolExecutor:
    """Return a pool whose threads have started, each with a large stack.

    Raises Overloaded if there are not so many threads to be had.
    """
    pool = ThreadPoolExecutor(num_threads, thread_name_prefix=name)
    together = threading.Barrier(num_threads + 1)
    with _lock, threads_to_be_had():
        # It holds for all threads that start until it is set back.
        usual = threading.stack_size(STACK_BYTES)
        try:
            for _ in range(num_threads):
                pool.submit(together.wait)
        except RuntimeError:
            # Those that have started wait for the others.
            together.abort()
            pool.shutdown(wait=False, cancel_futures=True)
            raise
        finally:
            threading.stack_size(usual)
    together.wait()
    return pool


def deeply(job: Callable[[], Result], name: str) -> Result:
    """Run `job` in a thread of its own, and wait for it. What it needed of the stack is given back."""
    pool = deep_pool(1, name)
    try:
        return pool.submit(job).result()
    finally:
        pool.shutdown(wait=True)
