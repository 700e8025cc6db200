"""Server-sent events: one for each message of a stream, comments while nothing comes, an error in the middle."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import msgspec

from weft_server.api.connection import SILENCE_S
from weft_server.api.http_messages import HttpStream
from weft_server.api.refusal import Refused
from weft_server.openai_api.error_bodies import error_body

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Mapping

EVENT_STREAM = "text/event-stream"
# Proxies that buffer would hold tokens back.
_HEADERS = (("cache-control", "no-cache"), ("x-accel-buffering", "no"))
DONE = b"data: [DONE]\n\n"
COMMENT = b": waiting\n\n"


def event(data: Any) -> bytes:
    """Return an event whose data is an object."""
    return b"data: " + msgspec.json.encode(data) + b"\n\n"


async def streamed(
    events: AsyncGenerator[bytes], params: Mapping[str, str], silence_s: float = SILENCE_S
) -> HttpStream:
    """Return the answer that these events make, once the first of them is there, or after a silence.

    Raises what comes in place of the first event, so that it becomes a status. What comes later becomes an event: a
    stream that merely ends looks whole to both SDKs.
    """
    chunks = _chunks(events, params, silence_s)
    # It has begun, so whoever closes it ends the call.
    await anext(chunks)
    return HttpStream(EVENT_STREAM, chunks, _HEADERS, COMMENT)


async def _chunks(events: AsyncGenerator[bytes], params: Mapping[str, str], silence_s: float) -> AsyncGenerator[bytes]:
    """Yield an empty chunk where the answer begins, then the events. Only the first is awaited by a task."""
    first = asyncio.create_task(_first(events))
    try:
        await asyncio.wait([first], timeout=silence_s)
        if is_here := first.done():
            await first
        yield b""
        try:
            if not is_here:
                yield COMMENT
            yield await first
            async for each in events:
                yield each
        except Refused as refused:
            yield b"data: " + error_body(refused.refusal, params) + b"\n\n"
    finally:
        first.cancel()
        await asyncio.wait([first])
        await events.aclose()


async def _first(events: AsyncGenerator[bytes]) -> bytes:
    return await anext(events)
