"""Waiting for what has no event."""

import asyncio
import threading
from contextlib import contextmanager


async def until(condition, timeout_s=30):
    """Return once a condition holds. Raises TimeoutError when it does not in time."""
    async with asyncio.timeout(timeout_s):
        while not condition():  # noqa: ASYNC110 - nobody tells when it holds
            await asyncio.sleep(0.001)


@contextmanager
def held(model, port="input_ids"):
    """Let the lane of a model that classifies or embeds run nothing of a port until the block ends."""
    session, free = model.engine.lanes[0].sessions[port], threading.Event()
    run = session.run

    def wait(feeds):
        assert free.wait(30)
        return run(feeds)

    session.run = wait
    try:
        yield
    finally:
        session.run = run
        free.set()
