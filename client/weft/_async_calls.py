"""How the asyncio client's verbs call the server: once, as a stream, or many at a time."""
# ruff: noqa: ASYNC109 - the timeout is the deadline that the server is told, not only how long we wait

import asyncio
import time
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any, ParamSpec, TypeVar

import grpc
from google.protobuf.message import Message

from weft._async_many import AsyncMany
from weft._channel import CallSettings
from weft._home import LoopHome
from weft._many import Questions, Sending
from weft._patience import NUM_RETRIES, pieces
from weft._reach import Reach
from weft._status import is_passed_by
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
    _reach: Reach
    _home: LoopHome

    async def _ask(
        self, verb: Verb[Asked, Answer], timeout: float | None, /, *asked: Asked.args, **options: Asked.kwargs
    ) -> Answer:
        request = verb.request(*asked, **options)
        return verb.read(await self._patiently(partial(self._ask_once, verb.path, request), timeout))

    def _stream(
        self, verb: WritingVerb[Asked, Answer], timeout: float | None, /, *asked: Asked.args, **options: Asked.kwargs
    ) -> AsyncStream[Answer]:
        request = verb.stream_request(request=verb.request(*asked, **options))
        begin = partial(self._begin, verb.stream_path, request)
        patience = self._settings.patience(timeout, num_retries=NUM_RETRIES)
        return AsyncStream(begin, verb.read, self._reach, patience, self._home)

    def _many(self, asked: Questions[Answer], concurrency: int, timeout: float | None) -> AsyncMany[Answer]:
        verb, inputs, make = asked
        self._home.check()

        def send(request: Message) -> Any:
            return self._open(self._methods_now()[verb.path], request, timeout)

        patience_s, wait_s = self._settings.limit_s(timeout), self._settings.wait
        return AsyncMany(
            Sending(inputs, make, send, verb.read, self._reach, self._home, concurrency, patience_s, wait_s)
        )

    async def _call(
        self, method: Callable[..., Awaitable[Response]], request: Message, timeout: float | None
    ) -> Response:
        """Call a method, and wait for a server for as long as the client does."""
        return await self._patiently(partial(self._call_once, method, request), timeout)

    async def _patiently(self, send: Callable[[float], Awaitable[Response]], timeout: float | None) -> Response:
        self._reach.check_open()
        patience = self._settings.patience(timeout)
        while True:
            try:
                return await send(patience.left_s)
            except Error as error:
                pause_s = patience.pause_s(error)
            for piece_s in pieces(pause_s, lambda: self._reach.closed):
                await asyncio.sleep(piece_s)

    async def _ask_once(self, path: str, request: Message, seconds: float) -> Any:
        began = time.monotonic()
        methods = self._methods_now()
        try:
            return await self._call_once(methods[path], request, seconds)
        except Unavailable as error:
            if methods is self._methods_of_all or not is_passed_by(error.__cause__):
                raise
        left_s = max(seconds - (time.monotonic() - began), 0.001)
        return await self._call_once(self._methods_of_all[path], request, left_s)

    async def _call_once(
        self, method: Callable[..., Awaitable[Response]], request: Message, seconds: float | None
    ) -> Response:
        try:
            response: Response = self._reach.heard(await self._open(method, request, seconds))
        except grpc.RpcError as error:
            raise self._reach.error(error) from error
        except asyncio.CancelledError as error:
            if task_is_cancelled():
                raise
            raise Cancelled("the call was cancelled") from error
        return response

    def _begin(self, path: str, request: Message, seconds: float, *, passes_by: bool) -> Any:
        return self._open((self._methods if passes_by else self._methods_of_all)[path], request, seconds)

    def _methods_now(self) -> dict[str, Any]:
        return self._methods if self._reach.passes_by else self._methods_of_all

    def _open(self, method: Callable[..., Call], request: Message, timeout: float | None) -> Call:
        self._home.check()
        self._reach.check_open()
        return method(request, timeout=self._settings.seconds(timeout), metadata=self._settings.headers(request))
