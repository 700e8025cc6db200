"""What goes on beside the calls: it begins again whenever it ends, or the server ends. It is never gone in silence."""

import asyncio

import pytest

from weft_server.process import background_tasks
from weft_server.process.background_tasks import BackgroundTasks

WAIT_S = 60.0


@pytest.fixture(autouse=True)
def _no_pause(monkeypatch):
    monkeypatch.setattr(background_tasks, "PAUSE_S", 0.0)


def _kept(make, tell):
    """Keep a task until it says that it goes on, or the server is to end. Returns why that is so."""
    failures = []

    async def run():
        settled = asyncio.Event()

        def fail(why):
            failures.append(why)
            settled.set()

        kept = BackgroundTasks(fail, tell)
        kept.keep("work", lambda: make(settled))
        async with asyncio.timeout(WAIT_S):
            await settled.wait()
        await kept.stop()

    asyncio.run(run())
    return failures


def test_a_task_begins_again_though_nobody_could_be_told():
    """A bug of who is told that a task has ended costs the telling, and not the task."""
    begun = []

    async def make(settled):
        begun.append("work")
        if len(begun) < 3:
            raise OSError("broken")
        settled.set()
        await asyncio.Event().wait()

    async def tell():
        raise LookupError("nobody hears")

    assert [] == _kept(make, tell)
    assert ["work"] * 3 == begun


def test_a_task_that_cannot_begin_again_ends_the_server(monkeypatch):
    """A bug in the keeping itself is a reason to end. Nothing is left undone for good by a server that goes on."""
    monkeypatch.setattr(background_tasks, "PAUSE_S", None)  # such a bug

    async def make(_):
        raise OSError("broken")

    async def tell():
        """Nobody is reached."""

    (why,) = _kept(make, tell)
    assert why.startswith("work failed: TypeError")
