"""How a client calls: a verb once or as a stream, and what it asks of the server itself."""

import time
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any, ParamSpec, TypeVar

import grpc
from google.protobuf.message import Message

from weft import _answers
from weft._async.streams import AsyncStream
from weft._channel import CallSettings, health, health_request
from weft._home import LoopHome
from weft._model import Model
from weft._patience import NUM_RETRIES, pieces
from weft._requests import selector
from weft._status import Reach, is_passed_by
from weft._types import Health
from weft._verbs.verb import Verb, WritingVerb
from weft.exceptions import DeadlineExceeded, Error, Unavailable
from weft_proto.v1.model_pb2 import GetModelRequest, ListModelsRequest

Asked = ParamSpec("Asked")
Answer = TypeVar("Answer")
Response = TypeVar("Response")


class AsyncCalls:
    """What a client has on its connections.

    Methods by their path, the same where a draining server answers too, and where models and health are asked for.
    """

    _settings: CallSettings
    _methods: dict[str, Any]
    _methods_of_all: dict[str, Any]
    _reach: Reach
    _home: LoopHome
    _model: Any
    _check: Any

    async def list_models(self, *, timeout: float | None = None) -> tuple[Model, ...]:
        """List every version of every model, by name and then version."""
        response = await self._call(self._model.ListModels, ListModelsRequest(), timeout)
        return tuple(_answers.model(each) for each in response.models)

    async def get_model(self, name: str, version: int | None = None, *, timeout: float | None = None) -> Model:
        """Tell of one model, by default of its highest version that is ready."""
        request = GetModelRequest(model=selector(name, version))
        response = await self._call(self._model.GetModel, request, timeout)
        return _answers.model(response.model)

    async def health(self, service: str = "", *, timeout: float | None = None) -> Health:
        """Ask whether the server, or a service such as "live" or "model/<name>", serves; NotFound if there is none."""
        return health(await self._call_once(self._check, health_request(service), timeout))

    async def wait_until_ready(self, timeout: float | None = None) -> None:
        """Wait until a server is there and serves; DeadlineExceeded when that takes longer than `timeout` seconds."""
        give_up = time.monotonic() + self._settings.limit_s(timeout)
        why = f"{self._reach.target}: no answer"
        while (left := give_up - time.monotonic()) > 0:
            try:
                if await self.health(timeout=left) is Health.SERVING:
                    return
                why = f"{self._reach.target}: it answers that it does not serve"
            except Unavailable as error:
                why = error.message
            except DeadlineExceeded:
                pass  # the last look runs out of time, and says less than those before
            await self._home.sleep(min(0.1, max(0.0, give_up - time.monotonic())))
        raise DeadlineExceeded(f"not ready in time: {why}")

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

    async def _call(self, method: Callable[..., Any], request: Message, timeout: float | None) -> Any:
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
                await self._home.sleep(piece_s)

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

    async def _call_once(self, method: Callable[..., Any], request: Message, seconds: float | None) -> Any:
        try:
            return self._reach.heard(await self._home.response(self._open(method, request, seconds)))
        except grpc.RpcError as error:
            raise self._reach.error(error) from error

    def _begin(self, path: str, request: Message, seconds: float, *, passes_by: bool) -> Any:
        return self._open((self._methods if passes_by else self._methods_of_all)[path], request, seconds)

    def _methods_now(self) -> dict[str, Any]:
        return self._methods if self._reach.passes_by else self._methods_of_all

    def _open(self, method: Callable[..., Any], request: Message, timeout: float | None) -> Any:
        self._home.check()
        self._reach.check_open()
        try:
            return method(request, timeout=self._settings.seconds(timeout), metadata=self._settings.headers(request))
        except ValueError:
            self._reach.check_open()  # by another thread, since we looked
            raise
