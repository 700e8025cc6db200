"""Several requests of one method: what they share is made once."""

from __future__ import annotations

import asyncio
from contextlib import aclosing, contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, Any, TypeVar

from weft_server.api.refusal import Refused
from weft_server.calls.concurrent_calls import asked_together
from weft_server.errors import InvalidRequest
from weft_server.openai_api.params import param_of

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Awaitable, Callable, Iterable, Iterator, Mapping, Sequence

    from google.protobuf.message import Message

    from weft_server.openai_api.api_request import ApiRequest

T = TypeVar("T")

# Of all requests of a batch together: what they share stands in each of them.
MAX_SHARED_BYTES = 16 * 1024 * 1024


def check_shared(shared: Message, count: int, param: str) -> None:
    """Raise InvalidRequest if `count` requests would be too much with what they share. `param` has the inputs."""
    size = shared.ByteSize()
    if count > 1 and count * size > MAX_SHARED_BYTES:
        why = f"must be fewer: {count} inputs share {size:,} bytes, together more than {MAX_SHARED_BYTES:,}"
        raise InvalidRequest(param, why, "MESSAGE_TOO_LARGE")


def joined(shared: Message, own: Message) -> Any:
    """Return a request, of what it shares with others and what is its own."""
    request = type(shared)()
    request.CopyFrom(shared)
    request.MergeFrom(own)
    return request


async def all_of(
    http: ApiRequest,
    ask: Callable[[Any], Awaitable[Any]],
    shared: Message,
    own: Sequence[Message],
    params: Mapping[str, str],
    lists: Iterable[str],
) -> list[Any]:
    """Return what `ask` gives for requests, in their order. With the first that is refused, all are.

    `params` are the endpoint's names of fields. An error tells which entry of `lists` it is about, see `placed`.
    """

    async def ask_one(numbered: tuple[int, Message]) -> Any:
        number, each = numbered
        with placed(number, params, lists):
            return await ask(joined(shared, each))

    if len(own) == 1:
        return [await ask(joined(shared, own[0]))]
    return await asked_together(ask_one, enumerate(own), http.most_together)


@contextmanager
def placed(number: int, params: Mapping[str, str], lists: Iterable[str]) -> Iterator[None]:
    """Let a refusal of one of `lists`, which has an entry for each request, name the entry: `prompt[40]`."""
    try:
        yield
    except Refused as refused:
        names = {field: f"{name}[{number}]" for field, name in params.items() if name in lists}
        message, param = param_of(refused.refusal, {**params, **names})
        if not param.startswith(tuple(names.values())):
            raise
        raise Refused(replace(refused.refusal, message=message, field=param)) from None


async def placed_stream(
    number: int, responses: AsyncGenerator[T], params: Mapping[str, str], lists: Iterable[str]
) -> AsyncGenerator[T]:
    """Yield what a stream yields. Its refusal is `placed`."""
    with placed(number, params, lists):
        async with aclosing(responses):
            async for each in responses:
                yield each


async def merged(streams: Sequence[AsyncGenerator[T]], most_together: int) -> AsyncGenerator[T]:
    """Yield what streams yield, as it comes. So many are read at a time. With the first that fails, all end."""
    # Of one place, so that what makes it waits for who reads it.
    came: asyncio.Queue[T | Exception | None] = asyncio.Queue(1)
    places = asyncio.Semaphore(most_together)

    async def read(each: AsyncGenerator[T]) -> None:
        async with places, aclosing(each):
            async for item in each:
                await came.put(item)

    async def read_all() -> None:
        last: Exception | None = None
        try:
            async with asyncio.TaskGroup() as group:
                for each in streams:
                    group.create_task(read(each))
        except* Exception as errors:  # noqa: BLE001 - the first is raised again
            last = errors.exceptions[0]
        await came.put(last)

    reading = asyncio.create_task(read_all())
    try:
        while (item := await came.get()) is not None:
            if isinstance(item, Exception):
                raise item
            yield item
    finally:
        reading.cancel()
        await asyncio.wait([reading])
