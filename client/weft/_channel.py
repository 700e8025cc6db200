"""How a client reaches its servers: what gRPC is told to do by itself, and what all its calls share."""

import json
import math
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeVar

import grpc
from google.protobuf.wrappers_pb2 import Int32Value, StringValue

from weft._fields import fill
from weft._patience import Patience
from weft._target import checked_proxy, checked_target, is_local
from weft._trace_context import trace_headers
from weft._types import Health
from weft._verbs.table import STREAM_PATHS
from weft.exceptions import InvalidRequest


def _named(path: str) -> dict[str, str]:
    """Name a method as a service config does."""
    _, service, method = path.split("/")
    return {"service": service, "method": method}


# gRPC itself retries calls. Streams are begun again by `Stream` and `AsyncStream`, before their first message. Where
# gRPC may retry one, and its connection is lost in the middle, grpcio 1.85 gives it no end, not even at its deadline.
# RESOURCE_EXHAUSTED is not listed: gRPC would retry it even where the server named no pause, and feed the overload.
_SERVICE_CONFIG: dict[str, Any] = {
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
        },
        {"name": [_named(path) for path in STREAM_PATHS]},
    ],
    # While one of two servers drains, half of the attempts fail, for as long as its last answers take.
    # So retries stop only while more than half of the attempts fail.
    # It is 1.0, because gRPC reads a bare 1 as next to nothing.
    "retryThrottling": {"maxTokens": 100, "tokenRatio": 1.0},
}

# Each server is watched. One that takes no new requests is passed by, so a drain loses no call, and no call waits for a
# server that starts.
# Retries alone lose some, because they go to the draining server again.
# Readiness is not what is watched. A server with one refused bundle is not ready, and answers for its other models.
_WATCHING_CONFIG = {**_SERVICE_CONFIG, "healthCheckConfig": {"serviceName": "accepting"}}

# Without retries and health checks.
CHANNEL_OPTIONS: list[tuple[str, Any]] = [
    # An alignment of 1,000 x 1,000 weights has 4 MB, which is gRPC's default limit.
    # What we send is bounded by the server's limits.
    ("grpc.max_receive_message_length", 64 * 1024 * 1024),
    # gRPC does not keep a larger request, and so does not retry it. The default is 256 KiB, less than a photograph.
    ("grpc.per_rpc_retry_buffer_size", 64 * 1024 * 1024),
    # A frozen server, or a dead connection, is noticed within 25 s.
    # Its calls then have more than half of the default timeout left for a retry elsewhere.
    # The server permits a ping every 10 s. The answer may take 10 s, because a machine may be that busy.
    # gRPC's keepalive_timeout has no effect while ping_timeout, which is a minute by default, is longer.
    ("grpc.keepalive_time_ms", 15_000),
    ("grpc.http2.ping_timeout_ms", 10_000),
    # By default gRPC waits a minute after the second ping of a silent connection.
    ("grpc.http2.max_pings_without_data", 0),
    # gRPC's pings that measure the bandwidth come with all data, and the server would count them as abuse.
    # Without them an answer may come 1 MiB at a time.
    ("grpc.http2.bdp_probe", 0),
    ("grpc.http2.lookahead_bytes", 1024 * 1024),
    # A server that comes up is found within seconds. By default the pause between attempts grows to two minutes.
    ("grpc.initial_reconnect_backoff_ms", 200),
    ("grpc.max_reconnect_backoff_ms", 5_000),
]


# A channel that watches health shares no connection with another one. Where such a connection ends right behind the
# SETTINGS of the server, grpcio 1.85 ends the whole process by a segmentation fault.
_APART = ("grpc.use_local_subchannel_pool", 1)

_KEY = re.compile(r"[a-z0-9_.-]+")
# Classes of those who wait for a model.
PRIORITIES = ("high", "normal", "low")
# Thirty years are no deadline.
MAX_TIMEOUT_S = 1e9


@dataclass(frozen=True)
class CallSettings:
    """What the calls of one client have in common."""

    target: str
    timeout: float
    # What is sent may be secret, and a repr ends in logs.
    metadata: tuple[tuple[str, str], ...] = field(repr=False)
    credentials: grpc.ChannelCredentials | None = field(default=None, repr=False)
    watch_health: bool = True
    wait: float = 0.0
    proxy: str | None = field(default=None, repr=False)

    @classmethod
    def of(
        cls,
        target: str,
        timeout: float,
        metadata: Mapping[str, str] | None = None,
        *,
        token: str | None = None,
        credentials: grpc.ChannelCredentials | None = None,
        priority: str | None = None,
        watch_health: bool | None = None,
        wait: float = 0.0,
        proxy: str | None = None,
    ) -> "CallSettings":
        """Check the arguments of a client."""
        target = checked_target(target)
        if not isinstance(credentials, grpc.ChannelCredentials | None):
            raise _wrong(f"credentials: must be grpc.ChannelCredentials, not {type(credentials).__name__}")
        pairs = _checked_metadata(metadata)
        # gRPC's watch carries no metadata. A gateway that wants a token for every call would refuse it, and then no
        # server would count as healthy. Weft's own servers answer it without a token.
        watch = not pairs if watch_health is None else watch_health
        if token is not None:
            pairs += (("authorization", f"Bearer {_checked_token(token, pairs)}"),)
            if credentials is None and not is_local(target):
                raise _wrong(
                    f"token: is not sent to {target} in plain text: give credentials=grpc.ssl_channel_credentials() "
                    "(of the command: --tls, or --ca FILE), or where others secure the way, "
                    "metadata={'authorization': 'Bearer ...'}"
                )
        if priority is not None:
            if priority not in PRIORITIES:
                raise _wrong(f"priority: must be {', '.join(PRIORITIES[:-1])} or {PRIORITIES[-1]}, not {priority!r}")
            pairs += (("weft-priority", priority),)
        if isinstance(wait, bool) or not isinstance(wait, int | float) or not wait >= 0:
            raise _wrong(f"wait: must be a number of seconds, 0 or more, not {wait!r}")
        settings = cls(target, timeout, pairs, credentials, watch, wait, checked_proxy(proxy))
        settings.seconds(timeout)
        return settings

    def headers(self, request: Any) -> tuple[tuple[str, str], ...]:
        """Give what is sent beside a request: the client's metadata, the model that it names, the caller's trace.

        By the model's name, a server whose queue for it is full refuses the request unread.
        """
        asked = getattr(request, "request", request)  # a stream's message holds the request of the unary call
        headers = self.headers_for(asked.model.name if "model" in asked.DESCRIPTOR.fields_by_name else "")
        return headers + trace_headers(dict(self.metadata))

    def headers_for(self, model: str) -> tuple[tuple[str, str], ...]:
        """Do as `headers` for a request whose model is known."""
        return (*self.metadata, ("weft-model", model)) if _KEY.fullmatch(model) else self.metadata

    def seconds(self, timeout: float | None) -> float | None:
        """Give the deadline of a call, in seconds from now: None when there is none."""
        seconds = self.timeout if timeout is None else timeout
        if not isinstance(seconds, int | float):
            raise InvalidRequest(f"timeout: must be a number of seconds, not {seconds!r}", reason="INVALID_FIELD")
        if not seconds > 0:
            raise InvalidRequest(f"timeout: must be more than 0 seconds, not {seconds}", reason="INVALID_FIELD")
        # gRPC's clock overflows some centuries from now, into the past.
        return None if seconds > MAX_TIMEOUT_S else seconds

    def limit_s(self, timeout: float | None) -> float:
        """Do as `seconds`: infinite when there is none."""
        seconds = self.seconds(timeout)
        return math.inf if seconds is None else seconds

    def patience(self, timeout: float | None, *, num_retries: int = 0) -> Patience:
        """Give how long a call waits that begins now."""
        return Patience(self.wait, self.limit_s(timeout), num_retries)


def _checked_metadata(metadata: Any) -> tuple[tuple[str, str], ...]:
    if not isinstance(metadata, Mapping | None):
        raise _wrong(f"metadata: must be a mapping of names to values, not {type(metadata).__name__}")
    for key in metadata or {}:
        if not (isinstance(key, str) and _KEY.fullmatch(key.lower())) or key.lower().endswith("-bin"):
            raise _wrong(f"metadata: {key!r} is no name of a text header")
    pairs = tuple((key.lower(), value) for key, value in (metadata or {}).items())
    for key, value in pairs:
        if not (isinstance(value, str) and value.isascii() and value.isprintable()):
            raise _wrong(f"metadata: {key} must be printable ASCII")
    return pairs


def _checked_token(token: Any, pairs: tuple[tuple[str, str], ...]) -> str:
    """Return a bearer token. What is wrong with one is said without it."""
    if not (isinstance(token, str) and token and token.isascii() and token.isprintable() and " " not in token):
        raise _wrong("token: must be printable ASCII without spaces")
    if any(key == "authorization" for key, _ in pairs):
        raise _wrong("token: metadata has an authorization already")
    return token


def _wrong(text: str) -> InvalidRequest:
    return InvalidRequest(text, reason="INVALID_FIELD")


Channel = TypeVar("Channel")


def open_channels(
    settings: CallSettings, insecure: Callable[..., Channel], secure: Callable[..., Channel]
) -> tuple[Channel, Channel]:
    """Open two channels, with TLS when there are credentials. Each has its own connections.

    The first is for requests to models and passes servers by that start or drain. The second reaches every server, to
    ask how it is, and to ask models where all servers would be passed by.
    """

    def channel(config: dict[str, Any]) -> Channel:
        options = [("grpc.service_config", json.dumps(config)), *CHANNEL_OPTIONS]
        if config is _WATCHING_CONFIG:
            options.append(_APART)
        return open_channel(settings, options, insecure, secure)

    return channel(_WATCHING_CONFIG if settings.watch_health else _SERVICE_CONFIG), channel(_SERVICE_CONFIG)


def open_channel(
    settings: CallSettings, options: Any, insecure: Callable[..., Channel], secure: Callable[..., Channel]
) -> Channel:
    """Open a channel, with TLS when there are credentials."""
    if settings.proxy is not None:
        options = [*options, ("grpc.http_proxy", settings.proxy)]
    elif is_local(settings.target):  # or gRPC would go there through a proxy that the environment names
        options = [*options, ("grpc.enable_http_proxy", 0)]
    if settings.credentials is None:
        return insecure(settings.target, options=options)
    return secure(settings.target, settings.credentials, options=options)


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


def health_request(service: str) -> StringValue:
    """Ask whether a health service serves."""
    message = StringValue()
    fill(message, value=service)
    return message


def health(message: Int32Value) -> Health:
    """Read a HealthCheckResponse."""
    return {1: Health.SERVING, 2: Health.NOT_SERVING}.get(message.value, Health.UNKNOWN)
