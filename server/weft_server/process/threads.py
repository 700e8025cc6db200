"""Threads that requests need: where the machine has none to give, the request is told so."""

from __future__ import annotations

import asyncio
from contextlib import contextmanager
from typing import TYPE_CHECKING, ParamSpec, TypeVar

from weft_server.errors import Overloaded

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

Given = ParamSpec("Given")
Result = TypeVar("Result")
# What `threading` says. It has no class of its own for it.
_NONE = "can't start new thread"


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
