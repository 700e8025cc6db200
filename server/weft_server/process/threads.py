"""Threads that requests need, some with a large stack. Where the machine has none to give, the request is told so."""

from __future__ import annotations

import asyncio
import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import TYPE_CHECKING, ParamSpec, TypeVar

from weft_server.errors import Overloaded

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

Given = ParamSpec("Given")
Result = TypeVar("Result")
# What `threading` says. It has no class of its own for it.
_NONE = "can't start new thread"
# Four times what the deepest grammar of 64 KiB was found to need. Only what is used takes memory.
STACK_BYTES = 256 << 20
_lock = threading.Lock()


@contextmanager
def threads_to_be_had() -> Iterator[None]:
    """Turn the machine's refusal to start a thread within into Overloaded."""
    try:
        yield
    except RuntimeError as error:
        if str(error) != _NONE:
            raise
        raise Overloaded("MACHINE_BUSY", "the machine has no thread for the request") from error


async def in_thread(job: Callable[Given, Result], *args: Given.args, **more: Given.kwargs) -> Result:
    """Do as asyncio.to_thread. Raises Overloaded if there is no thread to be had."""
    with threads_to_be_had():
        return await asyncio.to_thread(job, *args, **more)


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
