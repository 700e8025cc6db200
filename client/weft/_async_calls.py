"""How the asyncio client's verbs call the server: once, as a stream, or many at a time."""
# ruff: noqa: ASYNC109 - the timeout is the deadline that the server is told, not only how long we wait

import asyncio
import math
import time
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any, ParamSpec, TypeVar

import grpc
from google.protobuf.message import Message

from weft._async_many import AsyncMany
from weft._channel import CallSettings
from weft._many import Questions, Sending
from weft._status import error_of, none_accepts
from weft._streams import AsyncStream, task_is_cancelled
from weft._verbs import Verb, WritingVerb
from weft.exceptions import Cancelled, Error, Unavailable

Asked = ParamSpec("Asked")
Answer = TypeVar("Answer")
Response = TypeVar("Response")
Call = TypeVar("Call")


class AsyncCalls:
    """What `AsyncClient` has on its connections: see `Calls`."""

    _settings: CallSettings
    _methods: dict[str, Any]
    _methods_of_all: dict[str, Any]
    _closed: bool

    async def _ask(
        self, verb: Verb[Asked, Answer], timeout: float | None, /, *asked: Asked.args, **options: Asked.kwargs
    ) -> Answer:
        request = verb.request(*asked, **options)
        began = time.monotonic()
        try:
            response = await self._call(self._methods[verb.path], request, timeout)
        except Unavailable as error:
            if not none_accepts(error.__cause__):
                raise
            left = self._settings.seconds_left(timeout, began)
            response = await self._call(self._methods_of_all[verb.path], request, left)
        return verb.read(response)

    def _stream(
        self, verb: WritingVerb[Asked, Answer], timeout: float | None, /, *asked: Asked.args, **options: Asked.kwargs
    ) -> AsyncStream[Answer]:
        request = verb.stream_request(request=verb.request(*asked, **options))
        began = time.monotonic()
        call = self._open(self._methods[verb.stream_path], request, timeout)

        def ask_all() -> Any:
            left = self._settings.seconds_left(timeout, began)
            return self._open(self._methods_of_all[verb.stream_path], request, left)

        return AsyncStream(call, verb.read, self._settings.target, ask_all)

    def _many(
        self, asked: Questions[Answer], concurrency: int, timeout: float | None, outlasts: tuple[type[Error], ...] = ()
    ) -> AsyncMany[Answer]:
        verb, inputs, make = asked
        seconds = self._settings.seconds(timeout)
        send = partial(self._open, self._methods[verb.path], timeout=timeout)
        patience_s = math.inf if seconds is None else seconds
        target = self._settings.target
        return AsyncMany(Sending(inputs, make, send, verb.read, target, concurrency, patience_s, outlasts))

    def _open(self, method: Callable[..., Call], request: Message, timeout: float | None, **how: Any) -> Call:
        if self._closed:
            raise Error("the client is closed")
        return method(request, timeout=self._settings.seconds(timeout), metadata=self._settings.headers(request), **how)

    async def _call(
        self, method: Callable[..., Awaitable[Response]], request: Message, timeout: float | None
    ) -> Response:
        try:
            return await self._open(method, request, timeout)
        except grpc.RpcError as error:
            raise error_of(error, self._settings.target) from error
        except asyncio.CancelledError as error:
            if task_is_cancelled():
                raise
            raise Cancelled("the call was cancelled") from error
