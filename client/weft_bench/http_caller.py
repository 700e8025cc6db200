"""Sends one request by HTTP and writes down what came when."""

import asyncio
import ssl
import time
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

from weft import _answers
from weft._channel import CallSettings
from weft._model import Model
from weft._status import error_of
from weft.exceptions import DeadlineExceeded, Error, InternalError, InvalidRequest, Unavailable
from weft_bench.asking import Asked
from weft_bench.caller import CONNECT_S
from weft_bench.connect_form import failed
from weft_bench.form import Failed, Form, Reading
from weft_bench.http_connection import HttpConnection, HttpPool
from weft_bench.record import Outcome, Record
from weft_bench.workload import UNREADABLE, Method
from weft_proto.v1.methods import METHODS
from weft_proto.v1.model_pb2 import ListModelsResponse

_LIST = METHODS["ListModels"].path
# Beyond ten digits the Connect protocol has no timeout: that is over a hundred days.
_MAX_TIMEOUT_MS = 10**10 - 1


@asynccontextmanager
async def http_pool(settings: CallSettings, tls: ssl.SSLContext | None) -> AsyncGenerator[HttpPool]:
    """Give the connections to a server, one of which is there. Raises Unavailable, and InvalidRequest."""
    if settings.proxy:
        raise InvalidRequest("--proxy: is for gRPC; with --http no proxy is asked")
    pool = HttpPool(settings.target, tls)
    try:
        await pool.connect(CONNECT_S)
        yield pool
    finally:
        pool.close()


@asynccontextmanager
async def http_caller(
    settings: CallSettings, tls: ssl.SSLContext | None, method: Method, form: Form, model: str
) -> AsyncGenerator["HttpCaller"]:
    """Give what calls a method. Raises Unavailable, and InvalidRequest."""
    async with http_pool(settings, tls) as pool:
        yield HttpCaller(pool, method, form, settings, model)


async def list_models(settings: CallSettings, tls: ssl.SSLContext | None) -> tuple[Model, ...]:
    """Ask a server which models it has. Raises Error."""
    body: list[bytes] = []
    async with http_pool(settings, tls) as pool:
        connection = await pool.take()
        head = _head(pool, _LIST, "application/proto", settings, "")
        try:
            async with asyncio.timeout(settings.seconds(None)):
                status = await connection.ask(head + b"0\r\n\r\n", body.append)
        except TimeoutError:
            raise _late(pool) from None
        except ConnectionError as error:
            raise _broken(pool, error) from None
    if status != 200:
        raise error_of(failed(status or 0, b"".join(body)), pool.host)
    return tuple(_answers.model(each) for each in ListModelsResponse.FromString(b"".join(body)).models)


class HttpCaller:
    """Calls one method."""

    def __init__(self, pool: HttpPool, method: Method, form: Form, settings: CallSettings, model: str) -> None:
        self._pool = pool
        self._method = method
        self._form = form
        self._timeout = settings.seconds(None)
        self._head = _head(pool, form.path(method), form.content_type(method), settings, model)

    async def call(self, asked: Asked, record: Record, cancel_after: float | None) -> None:
        """Send a request and fill in its record: see `load.Caller`."""
        record.sent = time.monotonic()
        try:
            async with asyncio.timeout(self._timeout):
                connection = await self._pool.take()
                await self._ask(connection, asked, record, cancel_after)
        except Failed as failure:
            self._note(record, failure.code().name, error_of(failure, self._pool.host))
        except Error as error:
            self._note(record, "INTERNAL", error)
        except TimeoutError:
            self._note(record, "DEADLINE_EXCEEDED", _late(self._pool))
        except OSError as error:
            self._note(record, "UNAVAILABLE", _broken(self._pool, error))

    async def _ask(self, connection: HttpConnection, asked: Asked, record: Record, cancel_after: float | None) -> None:
        arrivals = record.arrivals

        def note() -> None:
            arrivals.append(time.monotonic())
            if len(arrivals) == cancel_after:
                connection.give_up()

        reading = self._form.reading(self._method, note)
        timer = None
        if cancel_after is not None and not self._method.streams:
            timer = asyncio.get_running_loop().call_later(cancel_after, connection.give_up)
        try:
            request = b"%b%d\r\n\r\n%b" % (self._head, len(asked.payload), asked.payload)
            status = await connection.ask(request, reading.feed)
        finally:
            if timer is not None:
                timer.cancel()
            self._pool.give(connection)
        record.ended = time.monotonic()
        if status is None:
            record.outcome = Outcome.CANCELLED
        else:
            _end(reading, status, record)
            record.outcome = Outcome.COMPLETED

    @staticmethod
    def _note(record: Record, status: str, error: Error) -> None:
        record.ended = time.monotonic()
        record.outcome = Outcome.FAILED
        record.status = status
        record.error = error


def _head(pool: HttpPool, path: str, content_type: str, settings: CallSettings, model: str) -> bytes:
    """The head of a request, but for the length of its body."""
    headers = {"host": pool.host, "content-type": content_type, **dict(settings.headers_for(model))}
    if (seconds := settings.seconds(None)) is not None:
        headers["connect-timeout-ms"] = str(min(_MAX_TIMEOUT_MS, max(1, round(1000 * seconds))))
    lines = [f"POST {path} HTTP/1.1", *(f"{name}: {value}" for name, value in headers.items()), "content-length: "]
    return "\r\n".join(lines).encode()


def _end(reading: Reading, status: int, record: Record) -> None:
    """Read an answer that has come whole. Raises Failed, and InternalError."""
    try:
        reading.end(status, record)
    except (ValueError, LookupError, TypeError, AttributeError):  # JSON of another shape
        raise InternalError(UNREADABLE) from None


def _late(pool: HttpPool) -> DeadlineExceeded:
    return DeadlineExceeded(f"{pool.host}: no answer came within the timeout")


def _broken(pool: HttpPool, error: OSError) -> Unavailable:
    return Unavailable(f"{pool.host}: {error.strerror or error}")
