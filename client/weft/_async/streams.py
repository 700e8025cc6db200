"""An answer that arrives piece by piece: iterate for the text, then read `result`."""

from collections.abc import Callable
from types import TracebackType
from typing import Any, Generic, Self, TypeVar

import grpc

from weft._home import LoopHome
from weft._patience import Patience, pieces
from weft._status import Reach, is_passed_by
from weft.exceptions import Cancelled, Error, InternalError

Answer = TypeVar("Answer")


class AsyncStream(Generic[Answer]):
    """Yields new text as it comes. As an async context manager, or left behind half-read, it cancels the call."""

    def __init__(
        self, begin: Callable[..., Any], read: Callable[[Any], Answer], reach: Reach, patience: Patience, home: LoopHome
    ) -> None:
        """`begin` makes the call, with so many seconds: to servers that take requests, or to all."""
        self._begin = begin
        self._read = read
        self._reach = reach
        self._patience = patience
        self._home = home
        self._result: Answer | None = None
        self._has_begun = self._is_cancelled = False
        self._passes_by = reach.passes_by
        self._call = begin(patience.left_s, passes_by=self._passes_by)

    @property
    def result(self) -> Answer:
        """The whole answer, equal to the unary call's; there once the stream was read to its end, an Error before."""
        if self._result is None:
            raise Error("the stream has not been read to its end, so there is no result yet")
        return self._result

    def cancel(self) -> None:
        """End the call; the server frees its slot. Nothing happens when it has ended already."""
        self._is_cancelled = True
        self._home.end(self._call.cancel)

    def __aiter__(self) -> Self:
        """Return self: a stream is read once."""
        return self

    async def __anext__(self) -> str:
        """Wait for new text, never empty."""
        while True:
            self._home.check()
            try:
                message = await self._home.message(self._call)
            except grpc.RpcError as error:
                for piece_s in pieces(self._pause_s(error), self._is_over):
                    await self._home.sleep(piece_s)
                self._begin_again()
                continue
            if message is grpc.aio.EOF:
                if self._result is None:
                    lost = f"{self._reach.target}: the stream ended without its final message. This is a bug."
                    raise InternalError(lost)
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
        if (call := getattr(self, "_call", None)) is not None:
            self._home.end(call.cancel)

    def _is_over(self) -> bool:
        return self._is_cancelled or self._reach.closed

    def _pause_s(self, error: grpc.RpcError) -> float:
        """Give the pause before the call is made again. Raise what went wrong, if it is not: a text has come, say."""
        if not self._has_begun and self._passes_by and is_passed_by(error):
            self._passes_by = False
            return 0.0
        failure = self._reach.error(error)
        if self._has_begun or self._is_cancelled:
            raise failure
        pause_s = self._patience.pause_s(failure)
        self._passes_by = self._reach.passes_by
        return pause_s

    def _begin_again(self) -> None:
        if not self._is_cancelled:
            self._call = self._begin(self._patience.left_s, passes_by=self._passes_by)
        if self._is_cancelled:  # maybe by another thread since we looked, which has ended the call of before
            self._home.end(self._call.cancel)
            raise Cancelled("the call was cancelled")

    def _take(self, message: Any) -> str:
        """Give the new text of a message; the final one has none and leaves the result."""
        self._has_begun = True
        self._reach.heard(message)
        if message.WhichOneof("event") == "final":
            self._result = self._read(message.final)
        return str(message.delta.text)
