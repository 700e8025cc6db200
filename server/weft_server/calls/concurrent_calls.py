"""Several requests of one call, such as the texts of a batch: only some of them are asked at a time."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable

Each = TypeVar("Each")
Answer = TypeVar("Answer")

# A usual model has so many slots.
_MOST_TOGETHER = 32


def most_together(max_queued_requests: int) -> int:
    """Return how many requests of a batch may run at a time. `max_queued_requests` is what a model's queue holds.

    Constraints have a quarter of the queue's places, and requests of the class low half of these.
    """
    return max(1, min(_MOST_TOGETHER, max_queued_requests // 8))


async def asked_together(ask: Callable[[Each], Awaitable[Answer]], requests: Iterable[Each], most: int) -> list[Answer]:
    """Return what `ask` gives for each request, in their order. With the first that is refused, all are."""
    places = asyncio.Semaphore(most)

    async def in_turn(request: Each) -> Answer:
        async with places:
            return await ask(request)

    try:
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(in_turn(request)) for request in requests]
    except* Exception as errors:  # noqa: BLE001 - the first is raised again
        raise errors.exceptions[0] from None
    return [task.result() for task in tasks]
