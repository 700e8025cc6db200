"""What every call shares: the channel's settings, the deadline, and the one table from gRPC status to exception."""

import json
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, TypeVar

import grpc
from google.protobuf.message import DecodeError
from google.protobuf.wrappers_pb2 import Int32Value, StringValue
from google.rpc import error_details_pb2, status_pb2

from weft._types import Health
from weft.exceptions import (
    AccessDenied,
    Cancelled,
    DeadlineExceeded,
    Error,
    FailedPrecondition,
    FieldViolation,
    InternalError,
    InvalidRequest,
    NotFound,
    Overloaded,
    Unavailable,
    Unsupported,
)

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
                "maxAttempts": 4,
                "initialBackoff": "0.1s",
                "maxBackoff": "2s",
                "backoffMultiplier": 2,
                "retryableStatusCodes": ["UNAVAILABLE"],
            },
        }
    ],
    "retryThrottling": {"maxTokens": 100, "tokenRatio": 0.1},
}

CHANNEL_OPTIONS: list[tuple[str, Any]] = [
    ("grpc.service_config", json.dumps(_SERVICE_CONFIG)),
    # An alignment of 1,000 x 1,000 weights is 4 MB, gRPC's default limit. What we send, the server's limits bound.
    ("grpc.max_receive_message_length", 64 * 1024 * 1024),
    # A dead connection is noticed while a call waits on it; without a call nothing is sent.
    ("grpc.keepalive_time_ms", 60_000),
    ("grpc.keepalive_timeout_ms", 20_000),
    # A server that comes up is found within seconds; gRPC's own pause between attempts grows to two minutes.
    ("grpc.initial_reconnect_backoff_ms", 200),
    ("grpc.max_reconnect_backoff_ms", 5_000),
]

_KINDS: dict[grpc.StatusCode, type[Error]] = {
    grpc.StatusCode.INVALID_ARGUMENT: InvalidRequest,
    grpc.StatusCode.OUT_OF_RANGE: InvalidRequest,
    grpc.StatusCode.NOT_FOUND: NotFound,
    grpc.StatusCode.FAILED_PRECONDITION: FailedPrecondition,
    grpc.StatusCode.UNIMPLEMENTED: Unsupported,
    grpc.StatusCode.UNAUTHENTICATED: AccessDenied,
    grpc.StatusCode.PERMISSION_DENIED: AccessDenied,
    grpc.StatusCode.RESOURCE_EXHAUSTED: Overloaded,
    grpc.StatusCode.UNAVAILABLE: Unavailable,
    grpc.StatusCode.DEADLINE_EXCEEDED: DeadlineExceeded,
    grpc.StatusCode.CANCELLED: Cancelled,
    grpc.StatusCode.ABORTED: Cancelled,
}  # every other status is an InternalError


@dataclass(frozen=True)
class CallSettings:
    """What the calls of one client have in common."""

    target: str
    timeout: float
    metadata: tuple[tuple[str, str], ...]

    @classmethod
    def of(cls, target: str, timeout: float, metadata: Mapping[str, str] | None) -> "CallSettings":
        """Check the arguments of a client."""
        pairs = tuple((key.lower(), value) for key, value in (metadata or {}).items())
        for key, value in pairs:
            if not (value.isascii() and value.isprintable()):
                raise InvalidRequest(f"metadata: {key} must be printable ASCII", reason="INVALID_FIELD")
        settings = cls(target, timeout, pairs)
        settings.seconds(timeout)
        return settings

    def seconds(self, timeout: float | None) -> float | None:
        """Give the deadline of a call, in seconds from now: None when there is none."""
        seconds = self.timeout if timeout is None else timeout
        if not seconds > 0:
            raise InvalidRequest(f"timeout: must be more than 0 seconds, not {seconds}", reason="INVALID_FIELD")
        return None if math.isinf(seconds) else seconds

    def error(self, call: Any) -> Error:
        """Give the exception for a call, or a grpc.RpcError, that did not end well."""
        code, text = call.code(), call.details() or ""
        status = _status(call.trailing_metadata() or ())
        reason, log_id, retry_after = "", "", None
        violations: tuple[FieldViolation, ...] = ()
        for detail in status.details:
            if detail.Is((info := error_details_pb2.ErrorInfo()).DESCRIPTOR):
                detail.Unpack(info)
                reason, log_id = info.reason, info.metadata.get("error_id", "")
            elif detail.Is((bad := error_details_pb2.BadRequest()).DESCRIPTOR):
                detail.Unpack(bad)
                violations = tuple(FieldViolation(v.field, v.description) for v in bad.field_violations)
            elif detail.Is((retry := error_details_pb2.RetryInfo()).DESCRIPTOR):
                detail.Unpack(retry)
                retry_after = retry.retry_delay.seconds + retry.retry_delay.nanos / 1e9
        kind = _KINDS.get(code, InternalError)
        if kind is Overloaded and not reason and "larger than max" in text:  # gRPC's own refusal of one large message
            kind, reason = InvalidRequest, "MESSAGE_TOO_LARGE"
        text = text.rpartition("last error: ")[2].removeprefix("UNKNOWN: ")
        # Without a reason the status comes from gRPC or a proxy, not from Weft: say whom we were talking to.
        message = text if reason else f"{self.target}: {text or code.name}"
        return kind(message, reason=reason, field_violations=violations, retry_after=retry_after, id=log_id)


def _status(metadata: Any) -> status_pb2.Status:
    """Read the google.rpc.Status that a server sent along, empty when there is none that can be read."""
    for key, value in metadata:
        if key == "grpc-status-details-bin":
            try:
                return status_pb2.Status.FromString(value)
            except DecodeError:
                break
    return status_pb2.Status()


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
