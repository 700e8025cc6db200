"""How a client reaches its servers: what gRPC is told to do by itself, and what all its calls share."""

import json
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, TypeVar

import grpc
from google.protobuf.wrappers_pb2 import Int32Value, StringValue

from weft._types import Health
from weft.exceptions import InvalidRequest

# gRPC itself retries, and never after the first message of an answer: a stream that has begun is not begun again.
# RESOURCE_EXHAUSTED is not listed: gRPC would retry it even where the server named no pause, and feed the overload.
# Client health checking stays off: the balancer would hide a server that is not ready from `health` and `list_models`
# too; a server that can't answer yet, or drains, says UNAVAILABLE, and the retry goes to the next one.
_SERVICE_CONFIG = {
    "loadBalancingConfig": [{"round_robin": {}}],
    "methodConfig": [
        {
            "name": [{}],
            "retryPolicy": {
                "maxAttempts": 5,
                "initialBackoff": "0.1s",
                "maxBackoff": "2s",
                "backoffMultiplier": 2,
                "retryableStatusCodes": ["UNAVAILABLE"],
            },
        }
    ],
    # While one of two servers drains, half of the attempts fail, for as long as its last answers take: retries stop
    # only where more than half do. (1.0: gRPC reads a bare 1 as next to nothing.)
    "retryThrottling": {"maxTokens": 100, "tokenRatio": 1.0},
}

CHANNEL_OPTIONS: list[tuple[str, Any]] = [
    ("grpc.service_config", json.dumps(_SERVICE_CONFIG)),
    # An alignment of 1,000 x 1,000 weights is 4 MB, gRPC's default limit. What we send, the server's limits bound.
    ("grpc.max_receive_message_length", 64 * 1024 * 1024),
    # What is larger is not kept, and so not retried; 256 KiB by default, less than a photograph.
    ("grpc.per_rpc_retry_buffer_size", 64 * 1024 * 1024),
    # A dead connection is noticed while a call waits on it; without a call nothing is sent.
    ("grpc.keepalive_time_ms", 60_000),
    ("grpc.keepalive_timeout_ms", 20_000),
    # A server that comes up is found within seconds; gRPC's own pause between attempts grows to two minutes.
    ("grpc.initial_reconnect_backoff_ms", 200),
    ("grpc.max_reconnect_backoff_ms", 5_000),
]


_KEY = re.compile(r"[a-z0-9_.-]+")
# Thirty years are no deadline.
MAX_TIMEOUT_S = 1e9


@dataclass(frozen=True)
class CallSettings:
    """What the calls of one client have in common."""

    target: str
    timeout: float
    metadata: tuple[tuple[str, str], ...]

    @classmethod
    def of(cls, target: str, timeout: float, metadata: Mapping[str, str] | None) -> "CallSettings":
        """Check the arguments of a client."""
        if not (target and target.isprintable()):
            raise InvalidRequest("target: must name a server, host:port", reason="INVALID_FIELD")
        pairs = tuple((key.lower(), value) for key, value in (metadata or {}).items())
        for key, value in pairs:
            if not _KEY.fullmatch(key) or key.endswith("-bin"):
                raise InvalidRequest(f"metadata: {key!r} is no name of a text header", reason="INVALID_FIELD")
            if not (isinstance(value, str) and value.isascii() and value.isprintable()):
                raise InvalidRequest(f"metadata: {key} must be printable ASCII", reason="INVALID_FIELD")
        settings = cls(target, timeout, pairs)
        settings.seconds(timeout)
        return settings

    def seconds(self, timeout: float | None) -> float | None:
        """Give the deadline of a call, in seconds from now: None when there is none."""
        seconds = self.timeout if timeout is None else timeout
        if not isinstance(seconds, int | float):
            raise InvalidRequest(f"timeout: must be a number of seconds, not {seconds!r}", reason="INVALID_FIELD")
        if not seconds > 0:
            raise InvalidRequest(f"timeout: must be more than 0 seconds, not {seconds}", reason="INVALID_FIELD")
        # gRPC's clock overflows some centuries from now, into the past.
        return None if seconds > MAX_TIMEOUT_S else seconds


Channel = TypeVar("Channel")


def open_channel(
    settings: CallSettings,
    insecure: Callable[..., Channel],
    secure: Callable[..., Channel],
    credentials: grpc.ChannelCredentials | None,
) -> Channel:
    """Open a channel with TLS when there are credentials, else without."""
    if credentials is None:
        return insecure(settings.target, options=CHANNEL_OPTIONS)
    return secure(settings.target, credentials, options=CHANNEL_OPTIONS)


def health_check(channel: Any) -> Any:
    """Give grpc.health.v1.Health/Check as a multicallable.

    HealthCheckRequest is one string in field 1 and HealthCheckResponse one enum in field 1, so protobuf's own wrappers
    read and write the same bytes and the client needs no further package.
    """
    return channel.unary_unary(
        "/grpc.health.v1.Health/Check",
        request_serializer=StringValue.SerializeToString,
        response_deserializer=Int32Value.FromString,
    )


def health(message: Int32Value) -> Health:
    """Read a HealthCheckResponse."""
    return {1: Health.SERVING, 2: Health.NOT_SERVING}.get(message.value, Health.UNKNOWN)
