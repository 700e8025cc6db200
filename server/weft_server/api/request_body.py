"""The body of a request on its way in: bounded from its first byte, and read by whoever wants it."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from weft_server.errors import InvalidRequest

if TYPE_CHECKING:
    from collections.abc import Callable


class RequestBody:
    """Its connection fills it by `feed` and `finish`. `Incoming.read` takes it for the source of a message.

    `expected` is the length that was announced, or None. `proceed` tells a caller who waits for that to send it.
    """

    __slots__ = ("_data", "_error", "_expected", "_is_wanted", "_most", "_proceed", "_waiting", "is_whole")

    def __init__(self, expected: int | None, proceed: Callable[[], None] | None) -> None:
        self._expected = expected
        self._proceed = proceed
        self._data = bytearray()
        self._most = 0
        self._is_wanted = True
        self._waiting: asyncio.Future[None] | None = None
        self._error: InvalidRequest | None = None
        self.is_whole = False

    def bound(self, most: int) -> None:
        """Take at most so many bytes. Raises InvalidRequest if more are announced."""
        self._most = most
        if self._expected is not None and self._expected > most:
            raise _too_large(self._expected, most)

    def feed(self, data: bytes) -> None:
        """Take what has come. What nobody wants is dropped."""
        if self._is_wanted:
            self._data += data
            if self._waiting and len(self._data) > self._most:
                self._wake()

    def finish(self) -> None:
        """Note that all has come."""
        self.is_whole = True
        self._wake()

    def drop(self) -> None:
        """Want nothing of it."""
        self._is_wanted = False
        self._data = bytearray()

    def break_off(self) -> None:
        """Note that its rest cannot be read."""
        self._error = InvalidRequest("", "the request's body ends in what is no HTTP", "MALFORMED_REQUEST")
        self._wake()

    async def read(self) -> bytes:
        """Return the body once it is whole. Raises InvalidRequest if it is too large, or never can be whole."""
        if not self.is_whole and self._error is None and len(self._data) <= self._most:
            if self._proceed:
                self._proceed()
            self._waiting = asyncio.get_running_loop().create_future()
            await self._waiting
        data = bytes(self._data)
        self.drop()
        if self._error:
            raise self._error
        if len(data) > self._most:
            raise _too_large(len(data), self._most)
        return data

    async def abort(self, *_: object) -> None:
        """Let `read` return what there is. Who ends a message so says why itself: see `Incoming`."""
        self._wake()

    def _wake(self) -> None:
        if self._waiting and not self._waiting.done():
            self._waiting.set_result(None)


def _too_large(size: int, most: int) -> InvalidRequest:
    return InvalidRequest(
        "", f"the request has {size} bytes or more, and this method takes at most {most}", "MESSAGE_TOO_LARGE"
    )
