"""Where a call was begun: a process, and for asyncio an event loop. Elsewhere nothing would come of it."""

import asyncio
import os
from collections.abc import Callable
from typing import Any, Protocol
from weakref import WeakSet

from weft.exceptions import Error


class Forked(Protocol):
    """A client that can connect again, and gives what it had before."""

    def _connect_again(self) -> Any: ...


# The clients of this process.
_clients: "WeakSet[Forked]" = WeakSet()
# The channels of the process that this is a fork of. To close them here could wait for ever.
_left_behind: list[Any] = []


def again_in_forks(client: Forked) -> None:
    """Let a client connect again in each fork of this process. Channels of before may hang there, or crash."""
    _clients.add(client)


def _connect_all_again() -> None:
    _left_behind.extend([client._connect_again() for client in _clients])  # noqa: SLF001 - our own


if hasattr(os, "register_at_fork"):  # not on Windows, where nothing forks
    os.register_at_fork(after_in_child=_connect_all_again)


class Home:
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


class LoopHome(Home):
    """The running event loop that this was made in, too: a grpc.aio channel belongs to one."""

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


def _running() -> asyncio.AbstractEventLoop | None:
    try:
        return asyncio.get_running_loop()
    except RuntimeError:
        return None
