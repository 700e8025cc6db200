"""Server-sent events: one for each message of a stream, comments while nothing comes, an error in the middle."""

from __future__ import annotations

import asyncio
from contextlib import aclosing, suppress
from typing import TYPE_CHECKING, Any

import msgspec

from weft_server.api.http_messages import HttpStream
from weft_server.api.refusal import Refused
from weft_server.openai_api.errors import error_body

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Mapping

EVENT_STREAM = "text/event-stream"
# Proxies that buffer would hold tokens back.
_HEADERS = (("cache-control", "no-cache"), ("x-accel-buffering", "no"))
DONE = b"data: [DONE]\n\n"
COMMENT = b": waiting\n\n"
# Proxies close a connection on which nothing comes, often after a minute.
SILENCE_S = 15.0
# How often it is looked whether something came. So the first comment comes after two to three such times.
_LOOKS = 3


def event(data: Any) -> bytes:
    """Return an event whose data is an object."""
    return b"data: " + msgspec.json.encode(data) + b"\n\n"


async def streamed(
    events: AsyncGenerator[bytes], params: Mapping[str, str], silence_s: float = SILENCE_S
) -> HttpStream:
    """Return the answer that these events make, once the first of them, or a comment, is there.

    Raises what comes in place of the first event, so that it becomes a status. What comes later becomes an event: a
    stream that merely ends looks whole to both SDKs.
    """
    chunks = _Commented(events, silence_s).chunks()
    try:
        first = await anext(chunks)
    except BaseException:
        await chunks.aclose()
        raise
    return HttpStream(EVENT_STREAM, _told(first, chunks, params), _HEADERS)


async def _told(first: bytes, chunks: AsyncGenerator[bytes], params: Mapping[str, str]) -> AsyncGenerator[bytes]:
    async with aclosing(chunks):
        try:
            yield first
            async for chunk in chunks:
                yield chunk
        except Refused as refused:
            yield b"data: " + error_body(refused.refusal, params) + b"\n\n"


class _Commented:
    """Events, with a comment where none comes for a while.

    A task awaits the events, because a wait that is given up would end them. No timer is set for an event: that would
    cost as much as the event. A clock ticks instead.
    """

    def __init__(self, events: AsyncGenerator[bytes], silence_s: float) -> None:
        self._events, self._tick_s = events, silence_s / _LOOKS
        # Of one place, so that what makes the events waits for who reads them.
        self._came: asyncio.Queue[bytes | BaseException | None] = asyncio.Queue(1)
        self._num_quiet_ticks = 0

    async def chunks(self) -> AsyncGenerator[bytes]:
        """Yield the events and the comments."""
        self._ticking = asyncio.get_running_loop().call_later(self._tick_s, self._tick)
        pumping = asyncio.create_task(self._pump())
        try:
            while (each := await self._came.get()) is not None:
                if isinstance(each, BaseException):
                    raise each
                yield each
        finally:
            self._ticking.cancel()
            pumping.cancel()
            with suppress(asyncio.CancelledError):
                await pumping

    async def _pump(self) -> None:
        try:
            async with aclosing(self._events):
                async for each in self._events:
                    self._num_quiet_ticks = 0
                    await self._came.put(each)
        except Exception as error:  # noqa: BLE001 - it is raised again, where it is awaited
            await self._came.put(error)
        else:
            await self._came.put(None)

    def _tick(self) -> None:
        self._num_quiet_ticks += 1
        if self._num_quiet_ticks >= _LOOKS and self._came.empty():
            self._num_quiet_ticks = 0
            self._came.put_nowait(COMMENT)
        self._ticking = asyncio.get_running_loop().call_later(self._tick_s, self._tick)
