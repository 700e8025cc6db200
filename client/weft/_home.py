"""Where a call was begun, and how it is waited for there: in a thread of a process, or in an event loop.

All that differs between `Client` and `AsyncClient` stands here. The rest is written for asyncio, in `_async/`; `_sync/`
is made of it.
"""

import asyncio
import os
import threading
import time
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any, Protocol, TypeVar
from weakref import WeakSet

import grpc

from weft.exceptions import Cancelled, Error

Response = TypeVar("Response")


class Reconnecting(Protocol):
    """A client that can connect again."""

    _channel: Any
    _control: Any
    _home: Any

    def _connect(self) -> None: ...


# The clients of this process.
_clients: "WeakSet[Reconnecting]" = WeakSet()
# The channels of the process that this is a fork of. To close them here could wait for ever.
_left_behind: list[Any] = []


def _connect_all_again() -> None:
    for client in _clients:
        _left_behind.append((client._channel, client._control))  # noqa: SLF001 - our own
        client._home = Home()  # noqa: SLF001 - same
        client._connect()  # noqa: SLF001 - same


if hasattr(os, "register_at_fork"):  # not on Windows, where nothing forks
    os.register_at_fork(after_in_child=_connect_all_again)


class Process:
    """The process that this was made in. A fork of it has no thread that hears of the calls of before."""

    def __init__(self) -> None:
        self._pid = os.getpid()

    def check(self) -> None:
        """Raise Error in another process: gRPC would wait there for ever."""
        if os.getpid() != self._pid:
            raise Error("this was begun before the process forked: begin it in the child", reason="FORKED")

    def end(self, cancel: Callable[[], Any]) -> None:
        """Cancel what was begun here. Nothing happens elsewhere."""
        if os.getpid() == self._pid:
            cancel()


class Home(Process):
    """Any thread of this process. It blocks."""

    def again_in_forks(self, client: Reconnecting) -> None:
        """Let a client connect again in each fork of this process. Channels of before may hang there, or crash."""
        _clients.add(client)

    def begin(self, method: Any) -> Any:
        """Return what begins a call and does not wait for it."""
        return method.future

    def sleep(self, seconds: float) -> None:
        """Do nothing for so long."""
        time.sleep(seconds)

    def event(self) -> threading.Event:
        """Return an event that `wait` waits for."""
        return threading.Event()

    def wait(self, event: threading.Event, seconds: float | None) -> None:
        """Wait until an event is set, or so long, and clear it."""
        event.wait(seconds)
        event.clear()

    def response(self, response: Response) -> Response:
        """Return what a method gave, which has waited already."""
        return response

    def result(self, call: Any) -> Any:
        """Return the response of a call that was begun; raises grpc.RpcError, and Cancelled."""
        try:
            return call.result()
        except grpc.FutureCancelledError as error:  # by another thread
            raise Cancelled("the call was cancelled") from error

    def message(self, call: Any) -> Any:
        """Wait for a message of a stream; grpc.aio.EOF behind the last one."""
        return next(call, grpc.aio.EOF)


class LoopHome(Process):
    """The running event loop that this was made in: a grpc.aio channel belongs to one. It awaits."""

    def __init__(self) -> None:
        super().__init__()
        loop = _running()
        if loop is None:
            raise Error("make the AsyncClient inside the running event loop that will use it", reason="WRONG_LOOP")
        self._loop = loop

    def check(self) -> None:
        """Raise Error outside the loop, or in another process."""
        if _running() is not self._loop:
            raise Error(
                "the AsyncClient belongs to another event loop: make one inside each loop, or use Client",
                reason="WRONG_LOOP",
            )
        super().check()

    def end(self, cancel: Callable[[], Any]) -> None:
        """Cancel what was begun here, from wherever this is called: garbage is collected in any thread."""
        if _running() is self._loop:
            cancel()
        elif not self._loop.is_closed():
            super().end(lambda: self._loop.call_soon_threadsafe(cancel))

    def again_in_forks(self, client: Reconnecting) -> None:
        """Do nothing: no loop goes on in a fork."""

    def begin(self, method: Any) -> Any:
        """Return what begins a call and does not wait for it."""
        return method

    async def sleep(self, seconds: float) -> None:
        """Do nothing for so long."""
        await asyncio.sleep(seconds)

    def event(self) -> asyncio.Event:
        """Return an event that `wait` waits for."""
        return asyncio.Event()

    async def wait(self, event: asyncio.Event, seconds: float | None) -> None:
        """Wait until an event is set, or so long, and clear it."""
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await event.wait()
        event.clear()

    async def response(self, call: Awaitable[Response]) -> Response:
        """Return the response of a call; raises grpc.RpcError, and Cancelled."""
        with _call_or_task():
            return await call

    async def result(self, call: Any) -> Any:
        """Return the response of a call that was begun; raises grpc.RpcError, and Cancelled."""
        return await self.response(call)

    async def message(self, call: Any) -> Any:
        """Wait for a message of a stream; grpc.aio.EOF behind the last one."""
        return await self.response(call.read())


@contextmanager
def _call_or_task() -> Iterator[None]:
    """Raise Cancelled where the call was cancelled, and leave a cancelled task alone."""
    try:
        yield
    except asyncio.CancelledError as error:
        if task_is_cancelled():
            raise
        raise Cancelled("the call was cancelled") from error


def task_is_cancelled() -> bool:
    """Tell a cancelled task, which must stay cancelled, from a cancelled call: grpc.aio raises the same for both."""
    task = asyncio.current_task()
    return task is not None and task.cancelling() > 0


def _running() -> asyncio.AbstractEventLoop | None:
    try:
        return asyncio.get_running_loop()
    except RuntimeError:
        return None
