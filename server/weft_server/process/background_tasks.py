"""Tasks of the event loop that last as long as the server. One that ends before is logged, and begun again."""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING, Any

import structlog

from weft_proto.first_line import first_line

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Coroutine

_log = structlog.get_logger(__name__)
# Between the end of a task and its next beginning, doubled each time. One that has lasted longer than the second figure
# begins with the first again.
PAUSE_S = 1.0
MAX_PAUSE_S = 60.0


class BackgroundTasks:
    """One for the server. To be used on the event loop's thread, but for `why_not`."""

    def __init__(self, fail: Callable[[str], None], tell: Callable[[], Awaitable[None]]) -> None:
        """`fail` ends the server, for a reason. `tell` is called when a task has ended: `why_not` has changed."""
        self._fail = fail
        self._tell = tell
        self._tasks: dict[str, asyncio.Task[None]] = {}
        # Of tasks that have ended, and are to begin again.
        self._whys: dict[str, str] = {}

    def keep(self, name: str, make: Callable[[], Coroutine[Any, Any, None]]) -> None:
        """Begin what lasts as long as the server, and begin it again whenever it ends, or end the server."""
        self.need(name, self._keep(name, make))

    def need(self, name: str, work: Coroutine[Any, Any, None]) -> None:
        """Begin what ends by itself. If it fails, the server cannot go on."""
        self._tasks[name] = asyncio.create_task(self._need(name, work), name=name)

    def why_not(self, name: str) -> str:
        """Return why a task does not go on now, or nothing. Any thread may ask."""
        return self._whys.get(name, "")

    def cancel(self, name: str) -> bool:
        """End a task, if there is one of that name. Returns whether it was under way."""
        task = self._tasks.get(name)
        return task is not None and task.cancel()

    async def stop(self) -> None:
        """End all, and wait for that."""
        for task in self._tasks.values():
            task.cancel()
        await asyncio.gather(*self._tasks.values(), return_exceptions=True)

    async def _keep(self, name: str, make: Callable[[], Coroutine[Any, Any, None]]) -> None:
        pause_s = PAUSE_S
        while True:
            began = time.monotonic()
            error = None
            try:
                await make()
            except Exception as raised:  # noqa: BLE001 - whatever it is, the next one may do better
                error = raised
            if time.monotonic() - began > MAX_PAUSE_S:
                pause_s = PAUSE_S
            self._whys[name] = _why(error) if error else "it returned"
            _log.error("background task ended", task=name, again_in_s=pause_s, exc_info=error)
            await self._tell_of(name)
            await asyncio.sleep(pause_s)
            pause_s = min(2 * pause_s, MAX_PAUSE_S)
            del self._whys[name]

    async def _tell_of(self, name: str) -> None:
        try:
            await self._tell()
        except Exception:  # noqa: BLE001 - the task may be what failed by this very bug, and is to begin again
            _log.exception("nobody was told that a background task ended", task=name)

    async def _need(self, name: str, work: Coroutine[Any, Any, None]) -> None:
        try:
            await work
        except Exception as error:  # noqa: BLE001 - whatever it is, it ends the server and is its reason
            _log.exception("background task failed, the server ends", task=name)
            self._fail(f"{name} failed: {_why(error)}")


def _why(error: BaseException) -> str:
    """What is wrong, in one line: of several errors, the first."""
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return f"{type(error).__name__}: {first_line(error)}"
