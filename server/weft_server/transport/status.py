"""The one table that turns errors into gRPC statuses. Nothing else chooses a status code."""

from __future__ import annotations

import secrets
from functools import lru_cache
from typing import TYPE_CHECKING, NamedTuple

import grpc
from google.protobuf import any_pb2, duration_pb2, message
from google.rpc import error_details_pb2, status_pb2

from weft_server.errors import (
    AdapterNotFound,
    AdapterRefused,
    BundleRefused,
    CannotAdapt,
    CannotConstrain,
    CannotDecompress,
    CannotExplain,
    CannotScore,
    CannotWatch,
    DeadlineExpired,
    Draining,
    HostRefused,
    InvalidRequest,
    LaneFailed,
    MessageTooSlow,
    MethodNotFound,
    ModelFailed,
    ModelNotAllowed,
    ModelNotFound,
    ModelNotReady,
    Overloaded,
    PageRefused,
    PermissionDenied,
    RequestError,
    ServiceNotFound,
    Unauthenticated,
)
from weft_server.models.request_context import REQUEST_ID_KEY

if TYPE_CHECKING:
    from weft_server.models.request_context import RequestContext

DOMAIN = "weft"
# A status travels in headers, and clients cap those at 8 KiB. The message is in there twice, up to 12 bytes a
# character.
MAX_MESSAGE_CHARS = 256

_CODES: dict[type[RequestError], grpc.StatusCode] = {
    InvalidRequest: grpc.StatusCode.INVALID_ARGUMENT,
    ModelNotFound: grpc.StatusCode.NOT_FOUND,
    AdapterNotFound: grpc.StatusCode.NOT_FOUND,
    ServiceNotFound: grpc.StatusCode.NOT_FOUND,
    MethodNotFound: grpc.StatusCode.UNIMPLEMENTED,
    CannotDecompress: grpc.StatusCode.UNIMPLEMENTED,
    CannotWatch: grpc.StatusCode.UNIMPLEMENTED,
    Unauthenticated: grpc.StatusCode.UNAUTHENTICATED,
    PermissionDenied: grpc.StatusCode.PERMISSION_DENIED,
    ModelNotAllowed: grpc.StatusCode.PERMISSION_DENIED,
    PageRefused: grpc.StatusCode.PERMISSION_DENIED,
    HostRefused: grpc.StatusCode.PERMISSION_DENIED,
    Overloaded: grpc.StatusCode.RESOURCE_EXHAUSTED,
    ModelNotReady: grpc.StatusCode.UNAVAILABLE,
    Draining: grpc.StatusCode.UNAVAILABLE,
    # Clients do not repeat it by themselves. A request that breaks a lane would break those of all servers.
    LaneFailed: grpc.StatusCode.INTERNAL,
    ModelFailed: grpc.StatusCode.UNAVAILABLE,
    DeadlineExpired: grpc.StatusCode.DEADLINE_EXCEEDED,
    MessageTooSlow: grpc.StatusCode.DEADLINE_EXCEEDED,
    BundleRefused: grpc.StatusCode.FAILED_PRECONDITION,
    AdapterRefused: grpc.StatusCode.FAILED_PRECONDITION,
    CannotAdapt: grpc.StatusCode.FAILED_PRECONDITION,
    CannotConstrain: grpc.StatusCode.FAILED_PRECONDITION,
    CannotExplain: grpc.StatusCode.FAILED_PRECONDITION,
    CannotScore: grpc.StatusCode.FAILED_PRECONDITION,
}


class Status(NamedTuple):
    """What `context.abort` takes. For a bug also the opaque id under which the caller logs the traceback.

    `details` is a google.rpc.Status, serialized. It is in the metadata too.
    """

    code: grpc.StatusCode
    message: str
    trailing_metadata: tuple[tuple[str, str | bytes], ...]
    details: bytes = b""
    error_id: str | None = None


def with_request_id(status: Status, call: RequestContext) -> Status:
    """Return a status that also says how its request is called, if the caller's headers have said so."""
    if not (call.sent_id and call.request_id):
        return status
    return status._replace(trailing_metadata=(*status.trailing_metadata, (REQUEST_ID_KEY, call.request_id)))


def to_status(error: BaseException) -> Status:
    """Return the gRPC status of any exception. One that is no RequestError is a bug: the client gets only an id."""
    if isinstance(error, RequestError):
        # Another server may answer in place of one that goes, without the wait. The client's own backoff paces that.
        pushback_s = None if isinstance(error, Draining | ModelFailed) else error.retry_after_s
        text, error_id = error.message[:MAX_MESSAGE_CHARS], error.error_id if isinstance(error, LaneFailed) else ""
        code = _CODES[type(error)]
        return _refusal(code, error.reason, text, error.field, error.retry_after_s, pushback_s, error_id)
    error_id = secrets.token_hex(8)
    info = error_details_pb2.ErrorInfo(reason="BUG", domain=DOMAIN, metadata={"error_id": error_id})
    return _status(grpc.StatusCode.INTERNAL, f"internal error {error_id}", [info])._replace(error_id=error_id)


# A flood gets the same few refusals again and again. Making one takes 23 us.
@lru_cache(64)
def _refusal(
    code: grpc.StatusCode,
    reason: str,
    text: str,
    field: str,
    retry_after_s: float | None,
    pushback_s: float | None,
    error_id: str,
) -> Status:
    known = {"error_id": error_id} if error_id else {}
    details: list[message.Message] = [error_details_pb2.ErrorInfo(reason=reason, domain=DOMAIN, metadata=known)]
    if field:
        violation = error_details_pb2.BadRequest.FieldViolation(field=field, description=text)
        details.append(error_details_pb2.BadRequest(field_violations=[violation]))
    if retry_after_s is not None:
        delay = duration_pb2.Duration()
        delay.FromMilliseconds(_milliseconds(retry_after_s))
        details.append(error_details_pb2.RetryInfo(retry_delay=delay))
    return _status(code, text, details, pushback_s)


def _status(
    code: grpc.StatusCode, text: str, details: list[message.Message], pushback_s: float | None = None
) -> Status:
    status = status_pb2.Status(code=code.value[0], message=text)
    for detail in details:
        packed = any_pb2.Any()
        packed.Pack(detail)
        status.details.append(packed)
    packed_status = status.SerializeToString()
    metadata: list[tuple[str, str | bytes]] = [("grpc-status-details-bin", packed_status)]
    if pushback_s is not None:
        # gRPC clients read this one themselves, and wait exactly this long before they retry.
        metadata.append(("grpc-retry-pushback-ms", str(_milliseconds(pushback_s))))
    return Status(code, text, tuple(metadata), packed_status)


def _milliseconds(seconds: float) -> int:
    return max(0, round(seconds * 1000))
