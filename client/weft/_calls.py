"""How the client's verbs call the server, blocking: once, as a stream, or many at a time."""

import math
import time
from collections.abc import Callable
from functools import partial
from typing import Any, ParamSpec, TypeVar

import grpc
from google.protobuf.message import Message

from weft._channel import CallSettings
from weft._many import Many, Questions, Sending
from weft._status import error_of, none_accepts
from weft._streams import Stream
from weft._verbs import Verb, WritingVerb
from weft.exceptions import Error, Unavailable

Asked = ParamSpec("Asked")
Answer = TypeVar("Answer")
Response = TypeVar("Response")


class Calls:
    """What `Client` has on its connections: methods by their path, and the same where a draining server answers too."""

    _settings: CallSettings
    _methods: dict[str, Any]
    _methods_of_all: dict[str, Any]
    _closed: bool

    def _ask(
        self, verb: Verb[Asked, Answer], timeout: float | None, /, *asked: Asked.args, **options: Asked.kwargs
    ) -> Answer:
        request = verb.request(*asked, **options)
        began = time.monotonic()
        try:
            response = self._call(self._methods[verb.path], request, timeout)
        except Unavailable as error:
            if not none_accepts(error.__cause__):
                raise
            left = self._settings.seconds_left(timeout, began)
            response = self._call(self._methods_of_all[verb.path], request, left)
        return verb.read(response)

    def _stream(
        self, verb: WritingVerb[Asked, Answer], timeout: float | None, /, *asked: Asked.args, **options: Asked.kwargs
    ) -> Stream[Answer]:
        request = verb.stream_request(request=verb.request(*asked, **options))
        began = time.monotonic()
        call = self._call(self._methods[verb.stream_path], request, timeout)

        def ask_all() -> Any:
            left = self._settings.seconds_left(timeout, began)
            return self._call(self._methods_of_all[verb.stream_path], request, left)

        return Stream(call, verb.read, self._settings.target, ask_all)

    def _many(self, asked: Questions[Answer], concurrency: int, timeout: float | None) -> Many[Answer]:
        verb, inputs, make = asked
        seconds = self._settings.seconds(timeout)
        send = partial(self._call, self._methods[verb.path].future, timeout=timeout)
        patience_s = math.inf if seconds is None else seconds
        return Many(Sending(inputs, make, send, verb.read, self._settings.target, concurrency, patience_s))

    def _call(self, method: Callable[..., Response], request: Message, timeout: float | None, **how: Any) -> Response:
        if self._closed:
            raise Error("the client is closed")
        try:
            return method(
                request, timeout=self._settings.seconds(timeout), metadata=self._settings.headers(request), **how
            )
        except grpc.RpcError as error:
            raise error_of(error, self._settings.target) from error
        except ValueError:
            if not self._closed:
                raise
            raise Error("the client is closed") from None  # by another thread, since we looked
