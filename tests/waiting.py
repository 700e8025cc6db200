"""Waiting for what has no event."""

import asyncio


async def until(condition, timeout_s=30):
    """Return once a condition holds. Raises TimeoutError when it does not in time."""
    async with asyncio.timeout(timeout_s):
        while not condition():  # noqa: ASYNC110 - nobody tells when it holds
            await asyncio.sleep(0.001)
