"""Many inputs, asked a few at a time in an event loop, and answered in their order."""

import asyncio
import time
from collections import deque
from collections.abc import AsyncIterable, AsyncIterator, Iterator
from contextlib import suppress
from functools import partial
from types import TracebackType
from typing import Any, Self, TypeVar

import grpc

from weft._many import ManyInputs, Sending
from weft._streams import task_is_cancelled
from weft._window import Asked
from weft.exceptions import Cancelled, Error

Answer = TypeVar("Answer")


class AsyncMany(ManyInputs[Answer], AsyncIterator[Answer | Error]):
    """Does as `Many` does, in an event loop, and is left by `async with`.

    Its inputs may come from an async iterable too. Then an input that is long in coming keeps no answer back.
    """

    def __init__(self, sending: Sending[Answer]) -> None:
        super().__init__(sending)
        given = sending.inputs
        self._inputs: Iterator[Any] | AsyncIterator[Any]
        self._inputs = aiter(given) if isinstance(given, AsyncIterable) else iter(given)
        self._reader: asyncio.Future[Any] | None = None
        self._ended: deque[Asked[Answer]] = deque()
        self._news = asyncio.Event()

    async def or_raise(self) -> AsyncIterator[Answer]:
        """Give the answers alone, and raise the first error: with it all ends."""
        async with self:
            async for answer in self:
                if isinstance(answer, Error):
                    raise answer
                yield answer

    def cancel(self) -> None:
        """End it: what is in flight is cancelled, and the server frees its slots. Nothing more is read or given."""
        super().cancel()
        if (reader := getattr(self, "_reader", None)) is not None:
            self._sending.home.end(reader.cancel)

    def __aiter__(self) -> Self:
        """Return self: answers are read once."""
        return self

    async def __anext__(self) -> Answer | Error:
        """Wait for the next answer."""
        self._sending.home.check()
        while True:
            now = time.monotonic()
            self._send(now)
            if (outcome := self._window.take()) is not None:
                return outcome
            if self._is_over and not len(self._window):
                raise self._end() or StopAsyncIteration
            await self._wait(now)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None
    ) -> None:
        self.cancel()
        if self._reader is not None:
            await asyncio.wait([self._reader])

    def _send(self, now: float) -> None:
        while self._window.may_send(now):
            if (asked := self._window.again(now)) is None:
                if self._is_over or self._window.is_full or not self._has_input():
                    return
                try:
                    asked = self._take_input(self._input())
                except (StopIteration, StopAsyncIteration):
                    self._no_more(None)
                    return
                except Exception as error:  # noqa: BLE001 - whoever gave the inputs gets it, behind the answers
                    self._no_more(error)
                    return
            if asked is not None:
                self._start(asked, partial(_note, self._ended, self._news))

    def _has_input(self) -> bool:
        """Whether an input, or their end, is there; if not, begin to wait for it."""
        if isinstance(self._inputs, Iterator):
            return True
        if self._reader is None:
            self._reader = asyncio.ensure_future(anext(self._inputs))
            self._reader.add_done_callback(partial(_wake, self._news))
        return self._reader.done()

    def _input(self) -> Any:
        if isinstance(self._inputs, Iterator):
            return next(self._inputs)
        assert self._reader is not None
        reader, self._reader = self._reader, None
        return reader.result()

    async def _wait(self, now: float) -> None:
        """Wait until calls have ended, an input has come, or a pause has passed."""
        with suppress(TimeoutError):
            async with asyncio.timeout(self._window.pause_s(now)):
                await self._news.wait()
        self._news.clear()
        while self._ended:
            outcome = await self._outcome(self._ended[0].call)  # first of all: this may be cancelled
            self._window.ended(self._ended.popleft(), outcome, time.monotonic())

    async def _outcome(self, call: Any) -> Answer | Error:
        reach = self._sending.reach
        try:
            return self._sending.read(reach.heard(await call))
        except grpc.RpcError as error:
            return reach.error(error)
        except Error as error:
            return error
        except asyncio.CancelledError:
            if task_is_cancelled():
                raise
            return Cancelled("the call was cancelled")


# What a call calls when it ends holds none of the above: so one that is left behind goes away at once.
def _note(ended: "deque[Asked[Any]]", news: asyncio.Event, asked: Asked[Any]) -> None:
    ended.append(asked)
    news.set()


def _wake(news: asyncio.Event, reader: "asyncio.Future[Any]") -> None:
    news.set()
    if not reader.cancelled():
        reader.exception()  # or asyncio complains that nobody has looked, where all has been cancelled
