"""An answer that arrives piece by piece: iterate for the text, then read `result`."""

import asyncio
from collections.abc import Callable
from types import TracebackType
from typing import Any, Generic, Self, TypeVar

import grpc

from weft._status import error_of, none_accepts
from weft.exceptions import Cancelled, Error, InternalError

Answer = TypeVar("Answer")


class _Events(Generic[Answer]):
    """What both kinds of stream do with the messages of a call."""

    def __init__(self, call: Any, read: Callable[[Any], Answer], target: str, ask_all: Callable[[], Any]) -> None:
        """`ask_all` makes the call anew, to servers that are passed by."""
        self._call = call
        self._ask_all: Callable[[], Any] | None = ask_all
        self._read = read
        self._target = target
        self._result: Answer | None = None

    @property
    def result(self) -> Answer:
        """The whole answer, equal to the unary call's; there once the stream was read to its end, an Error before."""
        if self._result is None:
            raise Error("the stream has not been read to its end, so there is no result yet")
        return self._result

    def cancel(self) -> None:
        """End the call; the server frees its slot. Nothing happens when it has ended already."""
        self._call.cancel()

    def _begin_anew(self, error: Any) -> None:
        """Ask servers that take no new requests, once, if there are no others. Raises all other errors."""
        if self._ask_all is None or not none_accepts(error):
            raise error_of(error, self._target) from error
        self._call, self._ask_all = self._ask_all(), None

    def _take(self, message: Any) -> str:
        """Give the new text of a message; the final one has none and leaves the result."""
        if message.WhichOneof("event") == "final":
            self._result = self._read(message.final)
        return str(message.delta.text)

    def _check_end(self) -> None:
        if self._result is None:
            raise InternalError(f"{self._target}: the stream ended without its final message. This is a bug.")


class Stream(_Events[Answer]):
    """Yields new text as it comes. As a context manager, or left behind half-read, it cancels the call."""

    def __iter__(self) -> Self:
        """Return self: a stream is read once."""
        return self

    def __next__(self) -> str:
        """Wait for new text, never empty."""
        while True:
            try:
                message = next(self._call)
            except StopIteration:
                self._check_end()
                raise
            except grpc.RpcError as error:
                self._begin_anew(error)
                continue
            if text := self._take(message):
                return text

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.cancel()


class AsyncStream(_Events[Answer]):
    """Yields new text as it comes. As an async context manager, or left behind half-read, it cancels the call."""

    def __aiter__(self) -> Self:
        """Return self: a stream is read once."""
        return self

    async def __anext__(self) -> str:
        """Wait for new text, never empty."""
        while True:
            try:
                message = await self._call.read()
            except grpc.RpcError as error:
                self._begin_anew(error)
                continue
            except asyncio.CancelledError as error:
                if task_is_cancelled():
                    raise
                raise Cancelled("the call was cancelled") from error
            if message is grpc.aio.EOF:
                self._check_end()
                raise StopAsyncIteration
            if text := self._take(message):
                return text

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None
    ) -> None:
        self.cancel()

    def __del__(self) -> None:
        # grpc.aio's call sits in a reference cycle: without this it would run on until the next garbage collection.
        if not self._call.done():
            self._call.cancel()


def task_is_cancelled() -> bool:
    """Tell a cancelled task, which must stay cancelled, from a cancelled call: grpc.aio raises the same for both."""
    task = asyncio.current_task()
    return task is not None and task.cancelling() > 0


def require_loop() -> None:
    """Refuse to go on outside a running event loop: a grpc.aio channel belongs to the loop it was made in."""
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        raise Error("make the AsyncClient inside the running event loop that will use it") from None
