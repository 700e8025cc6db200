"""Sends one request by gRPC and writes down what came when.

Nothing of an answer is read before its end: tokens are many.
"""

import asyncio
import json
import time
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Any

import grpc

from weft._channel import CHANNEL_OPTIONS, CallSettings, open_channel
from weft._home import task_is_cancelled
from weft._status import error_of
from weft.exceptions import Error, Unavailable
from weft_bench.asking import Asked
from weft_bench.record import Outcome, Record
from weft_bench.workload import Method

# Nothing is retried. A retried call has failed, and the wait for its next attempt is no latency of the server.
_SERVICE_CONFIG: dict[str, Any] = {"loadBalancingConfig": [{"round_robin": {}}]}
_OPTIONS = [("grpc.service_config", json.dumps(_SERVICE_CONFIG)), *CHANNEL_OPTIONS]
# Seconds to wait for a connection. That is enough: the server has just said what its models are.
CONNECT_S = 10.0


@asynccontextmanager
async def grpc_caller(settings: CallSettings, method: Method, model: str) -> AsyncGenerator["GrpcCaller"]:
    """Give what calls a method on a channel that is connected. Raises Unavailable."""
    async with open_channel(settings, _OPTIONS, grpc.aio.insecure_channel, grpc.aio.secure_channel) as channel:
        await _connect(channel, settings)
        yield GrpcCaller(channel, method, settings, model)


async def _connect(channel: grpc.aio.Channel, settings: CallSettings) -> None:
    try:
        async with asyncio.timeout(CONNECT_S):
            await channel.channel_ready()
    except TimeoutError:
        raise Unavailable(f"{settings.target}: no connection in {CONNECT_S:g} s") from None


class GrpcCaller:
    """Calls one method on one channel."""

    def __init__(self, channel: grpc.aio.Channel, method: Method, settings: CallSettings, model: str) -> None:
        self._method = method
        self._settings = settings
        self._metadata = settings.headers_for(model)
        self._timeout = settings.seconds(None)
        multicallable: Any = channel.unary_stream if method.streams else channel.unary_unary
        self._send = multicallable(method.path)  # without serializers: bytes go and bytes come

    async def call(self, asked: Asked, record: Record, cancel_after: float | None) -> None:
        """Send a request and fill in its record: see `load.Caller`."""
        record.sent = time.monotonic()
        call = self._send(asked.payload, timeout=self._timeout, metadata=self._metadata)
        try:
            if self._method.streams:
                last = await _read_stream(call, record, cancel_after)
            else:
                last = await _read_one(call, cancel_after)
            record.ended = time.monotonic()
            if last is None:
                record.outcome = Outcome.CANCELLED
            else:
                self._method.read(last, record)
                record.outcome = Outcome.COMPLETED
        except grpc.RpcError as error:
            record.ended = time.monotonic()
            status: Any = error
            record.outcome = Outcome.FAILED
            record.status = status.code().name
            record.error = error_of(status, self._settings.target)
        except Error as error:
            record.outcome = Outcome.FAILED
            record.status = "INTERNAL"
            record.error = error


async def _read_stream(call: Any, record: Record, cancel_after: float | None) -> bytes | None:
    """Return the last message; None when it was cancelled first."""
    arrivals = record.arrivals
    last = b""
    while (message := await call.read()) is not grpc.aio.EOF:
        arrivals.append(time.monotonic())
        last = message
        if len(arrivals) == cancel_after:
            call.cancel()
            return None
    return last


async def _read_one(call: Any, cancel_after: float | None) -> bytes | None:
    """Return the answer; None when it was cancelled first."""
    timer = None if cancel_after is None else asyncio.get_running_loop().call_later(cancel_after, call.cancel)
    try:
        return bytes(await call)
    except asyncio.CancelledError:
        if task_is_cancelled():
            raise
        return None
    finally:
        if timer is not None:
            timer.cancel()
